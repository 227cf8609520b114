// The maps by appearance and by motion, side by side; the point under the pointer is highlighted in both.

import { fetchJson } from "./api.js";
import { clock, isPart } from "./segment_card.js";
import { showGroups } from "./group_list.js";
import { picture } from "./thumbnails.js";
import { ScatterCanvas } from "./scatter_canvas.js";

const VECTORS = ["appearance", "motion"];

export class MapView {
  constructor() {
    this.tooltip = document.getElementById("tooltip");
    this.canvases = null;
    for (const choice of document.querySelectorAll("input[name=vector]")) {
      choice.addEventListener("change", () => this.colorByGroup());
    }
    addEventListener("themechange", () => { for (const canvas of this.allCanvases()) canvas.scheduleDraw(); });
  }

  async enter() {
    if (!this.canvases) await this.load();
    for (const canvas of this.allCanvases()) canvas.resize();
    await this.colorByGroup();
  }

  leave() {
    this.hover(null);
  }

  allCanvases() {
    return this.canvases ? Object.values(this.canvases) : [];
  }

  async load() {
    const sheets = VECTORS.map(vector => document.getElementById(`plane-${vector}`));
    for (const sheet of sheets) sheet.textContent = "Computing the map …";
    try {
      const maps = await Promise.all(VECTORS.map(vector => fetchJson(`map/${vector}`)));
      this.maps = Object.fromEntries(VECTORS.map((vector, i) => [vector, maps[i]]));
    } catch (error) {
      for (const sheet of sheets) sheet.textContent = "";
      throw error;
    }
    this.ids = this.maps.appearance.ids;
    this.canvases = {};
    VECTORS.forEach((vector, i) => {
      const on = {
        hover: (index, position) => this.hover(index, position),
        open: index => { location.hash = `#/segment/${this.ids[index]}`; },
      };
      const canvas = (this.canvases[vector] = new ScatterCanvas(sheets[i], `Map by ${vector}`, on));
      canvas.show(this.ids, this.maps[vector].coordinates, this.maps[vector].groups);
    });
  }

  async colorByGroup() {
    if (!this.canvases) return;
    const vector = document.querySelector("input[name=vector]:checked").value;
    for (const canvas of this.allCanvases()) canvas.colorBy(this.maps[vector].groups);
    const onPoint = group => { for (const canvas of this.allCanvases()) canvas.highlight(null, group); };
    await showGroups(document.getElementById("groups"), vector, onPoint);
  }

  async hover(index, position) {
    for (const canvas of this.allCanvases()) canvas.highlight(index, null);
    if (index === null) {
      this.tooltip.hidden = true;
      return;
    }
    const id = this.ids[index];
    if (this.tooltip.dataset.id !== id) {
      this.tooltip.dataset.id = id;
      const name = document.createElement("span");
      this.tooltip.replaceChildren(picture(id), name);
      fetchJson(`segments/${id}`).then(segment => { name.textContent = isPart(segment) ? `${segment.path} · ${clock(segment.start)}` : segment.path; }).catch(() => {});
    }
    this.tooltip.hidden = false;
    const box = this.tooltip.getBoundingClientRect();
    const left = Math.min(innerWidth - box.width - 8, Math.max(8, position.x - box.width / 2));
    const above = position.y - box.height - 26;
    this.tooltip.style.left = `${left}px`;
    this.tooltip.style.top = `${above > 8 ? above : position.y + 26}px`;
  }
}
