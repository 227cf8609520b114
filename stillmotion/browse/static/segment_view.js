// One segment or dropped video: its player, results by appearance, by motion and by a mix of both.

import { fetchJson, runAsync } from "./api.js";
import { card, clock, fileName, folderName, timeRange } from "./segment_card.js";
import { Player } from "./player.js";

const SIDE_RESULTS = 12;
const MIXED_RESULTS = 8;

export class SegmentView {
  constructor() {
    this.player = new Player(document.getElementById("stage"));
    this.slider = document.getElementById("mix");
    this.lists = Object.fromEntries(["appearance", "mixed", "motion"].map(name => [name, document.getElementById(name)]));
    this.slider.addEventListener("input", () => this.mix());
    this.updateWeightLabel();
  }

  async showSegment(id) {
    const stop = this.begin(`id=${id}`);
    const segment = await fetchJson(`segments/${id}`, { signal: stop.signal });
    this.setTitle(fileName(segment), [folderName(segment), timeRange(segment)]);
    this.showTimeline(segment);
    this.player.show(segment);
    await this.showResults(stop);
  }

  // upload: its key, its name, and its object URL, which is null after the page was reloaded.
  async showUpload(upload) {
    const stop = this.begin(`query=${encodeURIComponent(upload.key)}`);
    this.setTitle(upload.name, ["dropped on this page; not part of the folder"]);
    this.showTimeline(null);
    this.player.playUpload(upload.url, upload.name);
    await this.showResults(stop);
  }

  begin(query) {
    this.leave();
    this.query = query;
    this.stop = new AbortController();
    for (const list of Object.values(this.lists)) list.replaceChildren();
    scrollTo(0, 0);
    return this.stop;
  }

  leave() {
    this.stop?.abort();
    this.player.clear();
  }

  setTitle(name, details) {
    const title = document.getElementById("title");
    title.textContent = name;
    title.title = name;
    document.getElementById("where").textContent = details.filter(Boolean).join(" · ");
    title.focus({ preventScroll: true });
  }

  // The segments of the video along its duration; hidden if it has only one.
  showTimeline(segment) {
    const timeline = document.getElementById("timeline");
    const hasSeveral = segment !== null && segment.segments_of_video.length > 1;
    timeline.hidden = !hasSeveral;
    timeline.replaceChildren(...(hasSeveral ? segment.segments_of_video.map(other => timelineEntry(other, segment)) : []));
  }

  async showResults(stop) {
    const show = async (list, weight, count) => {
      try {
        fill(list, await this.fetchResults(this.query, weight, count, stop));
      } catch (error) {
        if (error.name === "AbortError") throw error;
        list.replaceChildren(message(error.message)); // an encoder may have no motion vectors
      }
    };
    await Promise.all([
      show(this.lists.appearance, 0, SIDE_RESULTS),
      show(this.lists.motion, 1, SIDE_RESULTS),
      show(this.lists.mixed, this.motionWeight(), MIXED_RESULTS),
    ]);
  }

  fetchResults(query, weight, count, stop) {
    return fetchJson(`neighbors?${query}&motion_weight=${weight}&top_k=${count}`, { signal: stop.signal });
  }

  motionWeight() {
    return this.slider.value / 100;
  }

  changeWeight(by) {
    this.slider.value = Number(this.slider.value) + by;
    this.mix();
  }

  mix() {
    this.updateWeightLabel();
    this.mixing?.abort();
    const stop = (this.mixing = new AbortController());
    const query = this.query;
    runAsync(async () => {
      const results = await this.fetchResults(query, this.motionWeight(), MIXED_RESULTS, stop);
      if (query === this.query) fill(this.lists.mixed, results);
    });
  }

  updateWeightLabel() {
    const motion = Number(this.slider.value);
    const text = motion === 0 ? "appearance only" : motion === 100 ? "motion only" : `${100 - motion} % appearance, ${motion} % motion`;
    this.slider.setAttribute("aria-valuetext", text);
    this.slider.title = text;
    this.slider.style.setProperty("--share", `${motion}%`);
  }
}

// Existing cards are reused, so that thumbnails do not start again. A line separates results that chance explains.
function fill(list, results) {
  const existing = new Map([...list.children].map(element => [element.getAttribute("href"), element]));
  const elements = results.map(segment => existing.get(`#/segment/${segment.id}`) || card(segment, true));
  const vectors = list.id === "mixed" ? ["appearance", "motion"] : [list.id];
  const isClose = results.map(segment => vectors.some(name => segment.close_by.includes(name)));
  const isCalibrated = results.some(segment => vectors.some(name => segment[`${name}_percentile`] !== null));
  if (isCalibrated && !isClose.at(-1)) {
    const numClose = isClose.lastIndexOf(true) + 1;
    elements.splice(numClose, 0, message(numClose ? "No closer than chance:" : "Nothing is closer than chance. Best of all:"));
  }
  list.replaceChildren(...(results.length ? elements : [message("There is nothing else in this folder.")]));
}

function message(text) {
  const line = document.createElement("p");
  line.className = "soft";
  line.textContent = text;
  return line;
}

function timelineEntry(other, segment) {
  const link = document.createElement("a");
  link.href = `#/segment/${other.id}`;
  link.style.left = `${(100 * other.start) / segment.duration}%`;
  link.style.width = `${(100 * (other.end - other.start)) / segment.duration}%`;
  link.title = `${clock(other.start)} to ${clock(other.end)}`;
  link.setAttribute("aria-label", `segment from ${clock(other.start)} to ${clock(other.end)}`);
  if (other.id === segment.id) link.setAttribute("aria-current", "true");
  return link;
}
