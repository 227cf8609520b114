// The film of a segment: the video itself between its two times, or a small preview, or else the moving thumbnail.

import { fetchBlob } from "./api.js";
import { isPart } from "./segment_card.js";
import { isAnimated, picture } from "./thumbnails.js";

export class Player {
  constructor(stage) {
    this.stage = stage;
    this.owned = null;
  }

  // segment: with `playback` (file, preview or missing), as the server tells it.
  async show(segment) {
    this.clear();
    const turn = (this.turn = {});
    if (segment.playback === "missing") {
      this.thumbnail(segment, "This video has gone since it was indexed. Its moving thumbnail is what is left.");
      return;
    }
    if (segment.playback === "file") {
      const video = this.video(`videos/${segment.id}`, segment.path);
      loopSegment(video, segment);
      if (await ready(video)) return;
      if (turn !== this.turn) return;
    }
    this.thumbnail(segment, "");
    try {
      const preview = URL.createObjectURL(await fetchBlob(`previews/${segment.id}`));
      if (turn !== this.turn) {
        URL.revokeObjectURL(preview);
        return;
      }
      this.clear();
      this.turn = turn;
      this.owned = preview;
      const video = this.video(preview, segment.path);
      video.loop = true;
      if (await ready(video)) return;
      if (turn === this.turn) this.thumbnail(segment, "This browser does not play the video: this is its moving thumbnail.");
    } catch (error) {
      if (turn === this.turn) this.thumbnail(segment, `${error.message}. This is its moving thumbnail.`);
    }
  }

  // A file that was dropped on the page; url: of the file in this browser, or null.
  async playUpload(url, name) {
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
    Object.assign(video, { muted: true, playsInline: true, controls: true, autoplay: isAnimated(), preload: "auto", src: source });
    video.setAttribute("aria-label", name);
    this.stage.replaceChildren(video);
    return video;
  }

  thumbnail(segment, words) {
    this.stage.replaceChildren(picture(segment.id), ...(words ? [note(words)] : []));
  }
}

// Plays the segment again and again; who seeks out of it sees the whole video.
function loopSegment(video, segment) {
  let whole = !isPart(segment);
  let own = true;
  video.loop = whole;
  video.addEventListener("loadedmetadata", () => { video.currentTime = segment.start; });
  video.addEventListener("seeking", () => {
    if (!own && (video.currentTime < segment.start - 0.3 || video.currentTime > segment.end + 0.3)) whole = video.loop = true;
    own = false;
  });
  const again = () => {
    if (whole || video.currentTime < segment.end - 0.02) return;
    own = true;
    video.currentTime = segment.start;
    if (isAnimated()) video.play().catch(() => {});
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
