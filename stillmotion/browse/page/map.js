// The map: the folder laid out by look and by motion, side by side; what is pointed at in one is lit in the other.

import { ask } from "./ask.js";
import { clock, isPart } from "./card.js";
import { showGroups } from "./groups.js";
import { picture } from "./moving.js";
import { Plane } from "./plane.js";

const ASPECTS = ["look", "motion"];

export class Map_ {
  constructor() {
    this.tip = document.getElementById("tip");
    this.planes = null;
    for (const choice of document.querySelectorAll("input[name=aspect]")) {
      choice.addEventListener("change", () => this.colour());
    }
    addEventListener("themechange", () => { for (const plane of this.drawn()) plane.later(); });
  }

  async enter() {
    if (!this.planes) await this.load();
    for (const plane of this.drawn()) plane.fit();
    await this.colour();
  }

  leave() {
    this.hover(null);
  }

  drawn() {
    return this.planes ? Object.values(this.planes) : [];
  }

  async load() {
    const sheets = ASPECTS.map(aspect => document.getElementById(`plane-${aspect}`));
    for (const sheet of sheets) sheet.textContent = "Laying out …";
    try {
      const maps = await Promise.all(ASPECTS.map(aspect => ask(`map/${aspect}`)));
      this.maps = Object.fromEntries(ASPECTS.map((aspect, i) => [aspect, maps[i]]));
    } catch (error) {
      for (const sheet of sheets) sheet.textContent = "";
      throw error;
    }
    this.ids = this.maps.look.ids;
    this.planes = {};
    ASPECTS.forEach((aspect, i) => {
      const on = {
        hover: (place, spot) => this.hover(place, spot),
        open: place => { location.hash = `#/moment/${this.ids[place]}`; },
      };
      const plane = (this.planes[aspect] = new Plane(sheets[i], `Map by ${aspect}`, on));
      plane.show(this.ids, this.maps[aspect].places, this.maps[aspect].groups);
    });
  }

  aspect() {
    return document.querySelector("input[name=aspect]:checked").value;
  }

  async colour() {
    if (!this.planes) return;
    const aspect = this.aspect();
    for (const plane of this.drawn()) plane.colourBy(this.maps[aspect].groups);
    const point = number => { for (const plane of this.drawn()) plane.light(null, number); };
    await showGroups(document.getElementById("groups"), aspect, { point });
  }

  async hover(place, spot) {
    for (const plane of this.drawn()) plane.light(place, null);
    this.pointed = place;
    if (place === null) {
      this.tip.hidden = true;
      return;
    }
    const id = this.ids[place];
    if (this.tip.dataset.id !== id) {
      this.tip.dataset.id = id;
      const words = document.createElement("span");
      this.tip.replaceChildren(picture(id), words);
      ask(`moments/${id}`).then(moment => { words.textContent = isPart(moment) ? `${moment.path} · ${clock(moment.start)}` : moment.path; }).catch(() => {});
    }
    this.tip.hidden = false;
    const box = this.tip.getBoundingClientRect();
    const left = Math.min(innerWidth - box.width - 8, Math.max(8, spot.x - box.width / 2));
    const above = spot.y - box.height - 26;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${above > 8 ? above : spot.y + 26}px`;
  }
}
