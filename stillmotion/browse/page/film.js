// The film of a moment: the video itself between its two times, or a small copy, or else the moving thumbnail.

import { blob } from "./ask.js";
import { isPart } from "./card.js";
import { moves, picture } from "./moving.js";

export class Film {
  constructor(stage) {
    this.stage = stage;
    this.owned = null;
  }

  // moment: with `film` (file, copy or gone), as the server tells it.
  async show(moment) {
    this.clear();
    const turn = (this.turn = {});
    if (moment.film === "gone") {
      this.thumbnail(moment, "This video has gone since it was indexed. Its moving thumbnail is what is left.");
      return;
    }
    if (moment.film === "file") {
      const video = this.video(`films/${moment.id}`, moment.path);
      between(video, moment);
      if (await ready(video)) return;
      if (turn !== this.turn) return;
    }
    this.thumbnail(moment, "");
    try {
      const copy = URL.createObjectURL(await blob(`copies/${moment.id}`));
      if (turn !== this.turn) {
        URL.revokeObjectURL(copy);
        return;
      }
      this.clear();
      this.turn = turn;
      this.owned = copy;
      const video = this.video(copy, moment.path);
      video.loop = true;
      if (await ready(video)) return;
      if (turn === this.turn) this.thumbnail(moment, "This browser does not play the video: this is its moving thumbnail.");
    } catch (error) {
      if (turn === this.turn) this.thumbnail(moment, `${error.message}. This is its moving thumbnail.`);
    }
  }

  // A file that was dropped on the page; url: of the file in this browser, or null.
  async own(url, name) {
    this.clear();
    const turn = (this.turn = {});
    if (url) {
      const video = this.video(url, name);
      video.loop = true;
      if (await ready(video)) return;
      if (turn !== this.turn) return;
    }
    this.stage.replaceChildren(note("This browser does not play the dropped video; it was searched by all the same."));
  }

  clear() {
    this.turn = null;
    for (const video of this.stage.querySelectorAll("video")) {
      video.pause();
      video.removeAttribute("src");
      video.load();
    }
    if (this.owned) URL.revokeObjectURL(this.owned);
    this.owned = null;
    this.stage.replaceChildren();
  }

  video(source, name) {
    const video = document.createElement("video");
    Object.assign(video, { muted: true, playsInline: true, controls: true, autoplay: moves(), preload: "auto", src: source });
    video.setAttribute("aria-label", name);
    this.stage.replaceChildren(video);
    return video;
  }

  thumbnail(moment, words) {
    this.stage.replaceChildren(picture(moment.id), ...(words ? [note(words)] : []));
  }
}

// Plays the moment again and again; who seeks out of it sees the whole video.
function between(video, moment) {
  let whole = !isPart(moment);
  let own = true;
  video.loop = whole;
  video.addEventListener("loadedmetadata", () => { video.currentTime = moment.start; });
  video.addEventListener("seeking", () => {
    if (!own && (video.currentTime < moment.start - 0.3 || video.currentTime > moment.end + 0.3)) whole = video.loop = true;
    own = false;
  });
  const again = () => {
    if (whole || video.currentTime < moment.end - 0.02) return;
    own = true;
    video.currentTime = moment.start;
    if (moves()) video.play().catch(() => {});
  };
  video.addEventListener("timeupdate", again);
  video.addEventListener("ended", again);
}

function ready(video) {
  return new Promise(done => {
    video.addEventListener("loadeddata", () => done(video.videoWidth > 0), { once: true });
    video.addEventListener("error", () => done(false), { once: true });
  });
}

function note(words) {
  const line = document.createElement("p");
  line.className = "note";
  line.textContent = words;
  return line;
}
