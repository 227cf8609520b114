// The map: the folder laid out by appearance and by motion, side by side; what is pointed at in one is lit in the other.

import { fetchJson } from "./api.js";
import { clock, isPart } from "./segment_card.js";
import { showGroups } from "./group_list.js";
import { picture } from "./thumbnails.js";
import { ScatterCanvas } from "./scatter_canvas.js";

const ASPECTS = ["appearance", "motion"];

export class MapView {
  constructor() {
    this.tooltip = document.getElementById("tooltip");
    this.planes = null;
    for (const choice of document.querySelectorAll("input[name=aspect]")) {
      choice.addEventListener("change", () => this.color());
    }
    addEventListener("themechange", () => { for (const plane of this.drawn()) plane.scheduleDraw(); });
  }

  async enter() {
    if (!this.planes) await this.load();
    for (const plane of this.drawn()) plane.resize();
    await this.color();
  }

  leave() {
    this.hover(null);
  }

  drawn() {
    return this.planes ? Object.values(this.planes) : [];
  }

  async load() {
    const sheets = ASPECTS.map(aspect => document.getElementById(`plane-${aspect}`));
    for (const sheet of sheets) sheet.textContent = "Computing the map …";
    try {
      const maps = await Promise.all(ASPECTS.map(aspect => fetchJson(`map/${aspect}`)));
      this.maps = Object.fromEntries(ASPECTS.map((aspect, i) => [aspect, maps[i]]));
    } catch (error) {
      for (const sheet of sheets) sheet.textContent = "";
      throw error;
    }
    this.ids = this.maps.appearance.ids;
    this.planes = {};
    ASPECTS.forEach((aspect, i) => {
      const on = {
        hover: (place, spot) => this.hover(place, spot),
        open: place => { location.hash = `#/segment/${this.ids[place]}`; },
      };
      const plane = (this.planes[aspect] = new ScatterCanvas(sheets[i], `Map by ${aspect}`, on));
      plane.show(this.ids, this.maps[aspect].coordinates, this.maps[aspect].groups);
    });
  }

  aspect() {
    return document.querySelector("input[name=aspect]:checked").value;
  }

  async color() {
    if (!this.planes) return;
    const aspect = this.aspect();
    for (const plane of this.drawn()) plane.colorBy(this.maps[aspect].groups);
    const point = number => { for (const plane of this.drawn()) plane.highlight(null, number); };
    await showGroups(document.getElementById("groups"), aspect, { point });
  }

  async hover(place, spot) {
    for (const plane of this.drawn()) plane.highlight(place, null);
    this.pointed = place;
    if (place === null) {
      this.tooltip.hidden = true;
      return;
    }
    const id = this.ids[place];
    if (this.tooltip.dataset.id !== id) {
      this.tooltip.dataset.id = id;
      const words = document.createElement("span");
      this.tooltip.replaceChildren(picture(id), words);
      fetchJson(`segments/${id}`).then(segment => { words.textContent = isPart(segment) ? `${segment.path} · ${clock(segment.start)}` : segment.path; }).catch(() => {});
    }
    this.tooltip.hidden = false;
    const box = this.tooltip.getBoundingClientRect();
    const left = Math.min(innerWidth - box.width - 8, Math.max(8, spot.x - box.width / 2));
    const above = spot.y - box.height - 26;
    this.tooltip.style.left = `${left}px`;
    this.tooltip.style.top = `${above > 8 ? above : spot.y + 26}px`;
  }
}
