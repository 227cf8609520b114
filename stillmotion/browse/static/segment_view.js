// One segment, or a dropped video: its film, what looks like it, what moves like it, and a bit of both.

import { fetchJson, runAsync } from "./api.js";
import { card, clock, fileName, folderName, span } from "./segment_card.js";
import { Player } from "./player.js";

const AT_SIDES = 12;
const IN_BETWEEN = 8;

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
    this.name(fileName(segment), [folderName(segment), span(segment)]);
    this.timeline(segment);
    this.player.show(segment);
    await this.find(stop);
  }

  // dropped: its key, its name, and its address in this browser where the page has not been loaded anew.
  async showUpload(dropped) {
    const stop = this.begin(`query=${encodeURIComponent(dropped.key)}`);
    this.name(dropped.name, ["dropped on this page; it is not a part of the folder"]);
    this.timeline(null);
    this.player.playUpload(dropped.url, dropped.name);
    await this.find(stop);
  }

  begin(asked) {
    this.leave();
    this.asked = asked;
    this.stop = new AbortController();
    for (const list of Object.values(this.lists)) list.replaceChildren();
    scrollTo(0, 0);
    return this.stop;
  }

  leave() {
    this.stop?.abort();
    this.player.clear();
  }

  name(words, about) {
    const title = document.getElementById("title");
    title.textContent = words;
    title.title = words;
    document.getElementById("where").textContent = about.filter(Boolean).join(" · ");
    title.focus({ preventScroll: true });
  }

  // Where in its video the segment lies, beside the others; nothing of a video of one segment.
  timeline(segment) {
    const place = document.getElementById("timeline");
    const several = segment !== null && segment.segments_of_video.length > 1;
    place.hidden = !several;
    place.replaceChildren(...(several ? segment.segments_of_video.map(other => timelineEntry(other, segment)) : []));
  }

  async find(stop) {
    const near = async (list, mix, top) => {
      try {
        fill(list, await fetchJson(`neighbors?${this.asked}&motion_weight=${mix}&top_k=${top}`, { signal: stop.signal }));
      } catch (error) {
        if (error.name === "AbortError") throw error;
        list.replaceChildren(line(error.message)); // an encoder may see no motion, and the appearance all the same
      }
    };
    await Promise.all([
      near(this.lists.appearance, 0, AT_SIDES),
      near(this.lists.motion, 1, AT_SIDES),
      near(this.lists.mixed, this.share(), IN_BETWEEN),
    ]);
  }

  share() {
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
    const asked = this.asked;
    runAsync(async () => {
      const found = await fetchJson(`neighbors?${asked}&motion_weight=${this.share()}&top_k=${IN_BETWEEN}`, { signal: stop.signal });
      if (asked === this.asked) fill(this.lists.mixed, found);
    });
  }

  updateWeightLabel() {
    const motion = Number(this.slider.value);
    const words = motion === 0 ? "appearance alone" : motion === 100 ? "motion alone" : `${100 - motion} % appearance, ${motion} % motion`;
    this.slider.setAttribute("aria-valuetext", words);
    this.slider.title = words;
    this.slider.style.setProperty("--share", `${motion}%`);
  }
}

// Cards that are there already stay, so that pictures do not begin anew.
function fill(list, found) {
  const there = new Map([...list.children].map(element => [element.getAttribute("href"), element]));
  const cards = found.map(segment => there.get(`#/segment/${segment.id}`) || card(segment, true));
  list.replaceChildren(...(cards.length ? cards : [line("There is nothing else in this folder.")]));
}

function line(words) {
  const said = document.createElement("p");
  said.className = "soft";
  said.textContent = words;
  return said;
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
