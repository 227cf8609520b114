// One moment, or a dropped video: its film, what looks like it, what moves like it, and a bit of both.

import { ask, attempt } from "./ask.js";
import { card, clock, fileName, folderName, span } from "./card.js";
import { Film } from "./film.js";

const AT_SIDES = 12;
const IN_BETWEEN = 8;

export class Moment {
  constructor() {
    this.film = new Film(document.getElementById("stage"));
    this.slider = document.getElementById("mix");
    this.lists = Object.fromEntries(["look", "mixed", "motion"].map(name => [name, document.getElementById(name)]));
    this.slider.addEventListener("input", () => this.mix());
    this.tellMix();
  }

  async showMoment(id) {
    const stop = this.begin(`id=${id}`);
    const moment = await ask(`moments/${id}`, { signal: stop.signal });
    this.name(fileName(moment), [folderName(moment), span(moment)]);
    this.timeline(moment);
    this.film.show(moment);
    await this.find(stop);
  }

  // dropped: its key, its name, and its address in this browser where the page has not been loaded anew.
  async showQuery(dropped) {
    const stop = this.begin(`query=${encodeURIComponent(dropped.key)}`);
    this.name(dropped.name, ["dropped on this page; it is not a part of the folder"]);
    this.timeline(null);
    this.film.own(dropped.url, dropped.name);
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
    this.film.clear();
  }

  name(words, about) {
    const title = document.getElementById("title");
    title.textContent = words;
    title.title = words;
    document.getElementById("where").textContent = about.filter(Boolean).join(" · ");
    title.focus({ preventScroll: true });
  }

  // Where in its video the moment lies, beside the others; nothing of a video of one moment.
  timeline(moment) {
    const place = document.getElementById("timeline");
    const several = moment !== null && moment.same.length > 1;
    place.hidden = !several;
    place.replaceChildren(...(several ? moment.same.map(other => segment(other, moment)) : []));
  }

  async find(stop) {
    const near = async (list, mix, top) => {
      try {
        fill(list, await ask(`near?${this.asked}&mix=${mix}&top=${top}`, { signal: stop.signal }));
      } catch (error) {
        if (error.name === "AbortError") throw error;
        list.replaceChildren(line(error.message)); // an encoder may see no motion, and the look all the same
      }
    };
    await Promise.all([
      near(this.lists.look, 0, AT_SIDES),
      near(this.lists.motion, 1, AT_SIDES),
      near(this.lists.mixed, this.share(), IN_BETWEEN),
    ]);
  }

  share() {
    return this.slider.value / 100;
  }

  nudge(by) {
    this.slider.value = Number(this.slider.value) + by;
    this.mix();
  }

  mix() {
    this.tellMix();
    this.mixing?.abort();
    const stop = (this.mixing = new AbortController());
    const asked = this.asked;
    attempt(async () => {
      const found = await ask(`near?${asked}&mix=${this.share()}&top=${IN_BETWEEN}`, { signal: stop.signal });
      if (asked === this.asked) fill(this.lists.mixed, found);
    });
  }

  tellMix() {
    const motion = Number(this.slider.value);
    const words = motion === 0 ? "look alone" : motion === 100 ? "motion alone" : `${100 - motion} % look, ${motion} % motion`;
    this.slider.setAttribute("aria-valuetext", words);
    this.slider.title = words;
    this.slider.style.setProperty("--share", `${motion}%`);
  }
}

// Cards that are there already stay, so that pictures do not begin anew.
function fill(list, found) {
  const there = new Map([...list.children].map(element => [element.getAttribute("href"), element]));
  const cards = found.map(moment => there.get(`#/moment/${moment.id}`) || card(moment, true));
  list.replaceChildren(...(cards.length ? cards : [line("There is nothing else in this folder.")]));
}

function line(words) {
  const said = document.createElement("p");
  said.className = "soft";
  said.textContent = words;
  return said;
}

function segment(other, moment) {
  const link = document.createElement("a");
  link.href = `#/moment/${other.id}`;
  link.style.left = `${(100 * other.start) / moment.duration}%`;
  link.style.width = `${(100 * (other.end - other.start)) / moment.duration}%`;
  link.title = `${clock(other.start)} to ${clock(other.end)}`;
  link.setAttribute("aria-label", `moment from ${clock(other.start)} to ${clock(other.end)}`);
  if (other.id === moment.id) link.setAttribute("aria-current", "true");
  return link;
}
