// Plays a segment: the video file between its times, or a preview, or the animated thumbnail.

import { fetchBlob } from "./api.js";
import { isPart } from "./segment_card.js";
import { isAnimated, picture } from "./thumbnails.js";

export class Player {
  constructor(stage) {
    this.stage = stage;
    this.objectUrl = null;
  }

  // segment: with `playback` (file, preview or missing), as the server sends it.
  async show(segment) {
    this.clear();
    const turn = (this.turn = {});
    if (segment.playback === "missing") {
      this.thumbnail(segment, "This video no longer exists; this is its thumbnail.");
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
      this.objectUrl = preview;
      const video = this.video(preview, segment.path);
      video.loop = true;
      if (await ready(video)) return;
      if (turn === this.turn) this.thumbnail(segment, "This browser cannot play the video; this is its thumbnail.");
    } catch (error) {
      if (turn === this.turn) this.thumbnail(segment, `${error.message}. This is its thumbnail.`);
    }
  }

  // A dropped video. url: object URL of the file; null after the page was reloaded.
  async playUpload(url, name) {
    this.clear();
    if (!url) {
      this.stage.replaceChildren(note("The page was reloaded, so the dropped video cannot be played; its results are still shown."));
      return;
    }
    const turn = (this.turn = {});
    const video = this.video(url, name);
    video.loop = true;
    if (await ready(video) || turn !== this.turn) return;
    this.stage.replaceChildren(note("This browser cannot play the dropped video; its results are shown all the same."));
  }

  clear() {
    this.turn = null;
    for (const video of this.stage.querySelectorAll("video")) {
      video.pause();
      video.removeAttribute("src");
      video.load();
    }
    if (this.objectUrl) URL.revokeObjectURL(this.objectUrl);
    this.objectUrl = null;
    this.stage.replaceChildren();
  }

  video(source, name) {
    const video = document.createElement("video");
    Object.assign(video, { muted: true, playsInline: true, controls: true, autoplay: isAnimated(), preload: "auto", src: source });
    video.setAttribute("aria-label", name);
    this.stage.replaceChildren(video);
    return video;
  }

  thumbnail(segment, text) {
    this.stage.replaceChildren(picture(segment.id), ...(text ? [note(text)] : []));
  }
}

// Loop the segment; seeking out of it plays the whole video.
function loopSegment(video, segment) {
  let whole = !isPart(segment);
  let isOwnSeek = true;
  video.loop = whole;
  video.addEventListener("loadedmetadata", () => { video.currentTime = segment.start; });
  video.addEventListener("seeking", () => {
    if (!isOwnSeek && (video.currentTime < segment.start - 0.3 || video.currentTime > segment.end + 0.3)) whole = video.loop = true;
    isOwnSeek = false;
  });
  const restart = () => {
    if (whole || video.currentTime < segment.end - 0.02) return;
    isOwnSeek = true;
    video.currentTime = segment.start;
    if (isAnimated()) video.play().catch(() => {});
  };
  video.addEventListener("timeupdate", restart);
  video.addEventListener("ended", restart);
}

function ready(video) {
  return new Promise(done => {
    video.addEventListener("loadeddata", () => done(video.videoWidth > 0), { once: true });
    video.addEventListener("error", () => done(false), { once: true });
  });
}

function note(text) {
  const line = document.createElement("p");
  line.className = "note";
  line.textContent = text;
  return line;
}
