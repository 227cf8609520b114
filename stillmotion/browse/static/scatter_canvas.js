// Segments as points on a plane that can be moved and enlarged; where few are in view, they are small pictures.

import { nearestInDirection } from "./arrow_keys.js";
import { color } from "./group_colors.js";

const MARGIN = 34;
const PICTURED = 140; // points in view, up to which they are pictures
const NEAR = 14; // pixels from a point at which it is meant
const LARGEST = 40;

export class ScatterCanvas {
  // sheet: the element to draw in. on: { hover(place or null, box), open(place) }; a place is a number of the list.
  constructor(sheet, label, on) {
    this.sheet = sheet;
    this.on = on;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `${label}: arrow keys go from segment to segment, Enter opens one`);
    this.sheet.replaceChildren(this.canvas, this.buttons());
    this.points = [];
    this.posters = new Map();
    this.lit = null;
    this.only = null;
    this.reset();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(sheet);
  }

  // ids, places (x, y from 0 to 1) and groups of all segments.
  show(ids, places, groups) {
    this.ids = ids;
    this.groups = groups;
    this.points = places.map(([x, y], place) => ({ place, x, y: 1 - y }));
    this.resize();
  }

  colorBy(groups) {
    this.groups = groups;
    this.scheduleDraw();
  }

  highlight(place, only = this.only) {
    this.lit = place;
    this.only = only;
    this.scheduleDraw();
  }

  reset() {
    Object.assign(this, { zoom: 1, left: 0, top: 0 });
    this.scheduleDraw();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.wide = this.sheet.clientWidth;
    this.high = this.sheet.clientHeight;
    this.canvas.width = Math.round(this.wide * ratio);
    this.canvas.height = Math.round(this.high * ratio);
    this.canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    this.scheduleDraw();
  }

  // Pixels of a point: the unit square stretched over the sheet, enlarged and moved.
  at(point) {
    const x = MARGIN + point.x * (this.wide - 2 * MARGIN);
    const y = MARGIN + point.y * (this.high - 2 * MARGIN);
    return { point, x: x * this.zoom + this.left, y: y * this.zoom + this.top };
  }

  inView() {
    return this.points.map(point => this.at(point))
      .filter(({ x, y }) => x > -30 && y > -30 && x < this.wide + 30 && y < this.high + 30);
  }

  scheduleDraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    if (!this.wide || !this.points.length) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.wide, this.high);
    const seen = this.inView();
    const pictured = seen.length <= PICTURED;
    const size = Math.max(20, Math.min(54, 0.58 * Math.sqrt((this.wide * this.high) / seen.length)));
    const radius = Math.max(2, Math.min(6, (90 / Math.sqrt(this.points.length)) * Math.sqrt(this.zoom)));
    const last = [];
    for (const spot of seen) {
      if (spot.point.place === this.lit) last.push(spot);
      else this.mark(pen, spot, pictured ? this.still(spot.point.place) : null, size, radius);
    }
    for (const spot of last) {
      this.mark(pen, spot, pictured ? this.still(spot.point.place) : null, size * 1.3, radius * 1.8, true);
    }
  }

  mark(pen, { point, x, y }, still, size, radius, lit = false) {
    const group = this.groups[point.place];
    const faint = this.only !== null && group !== this.only && !lit;
    pen.globalAlpha = faint ? 0.12 : still || lit ? 1 : 0.75;
    pen.fillStyle = pen.strokeStyle = color(group);
    pen.beginPath();
    if (!still) {
      pen.arc(x, y, radius, 0, 2 * Math.PI);
      pen.fill();
    } else {
      const [wide, high] = [size, size * 0.75];
      pen.roundRect(x - wide / 2, y - high / 2, wide, high, 5);
      pen.save();
      pen.clip();
      const scale = Math.max(wide / still.naturalWidth, high / still.naturalHeight);
      const [w, h] = [still.naturalWidth * scale, still.naturalHeight * scale];
      pen.drawImage(still, x - w / 2, y - h / 2, w, h);
      pen.restore();
      pen.lineWidth = lit ? 3.5 : 2.5;
      pen.stroke();
    }
    if (lit && !still) {
      pen.lineWidth = 2;
      pen.strokeStyle = getComputedStyle(this.canvas).color;
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // A picture that has come; one that has not is asked for, and drawn when it is there.
  still(place) {
    let image = this.posters.get(place);
    if (!image) {
      image = new Image();
      image.onload = () => this.scheduleDraw();
      image.src = `posters/${this.ids[place]}`;
      this.posters.set(place, image);
    }
    return image.complete && image.naturalWidth ? image : null;
  }

  nearest(x, y) {
    let best = null;
    let least = this.inView().length <= PICTURED ? 24 : NEAR;
    for (const spot of this.inView()) {
      const far = Math.hypot(spot.x - x, spot.y - y);
      if (far < least) [best, least] = [spot, far];
    }
    return best;
  }

  hover(spot) {
    const box = this.canvas.getBoundingClientRect();
    this.on.hover(spot ? spot.point.place : null, spot && { x: box.left + spot.x, y: box.top + spot.y });
  }

  zoomBy(by, x = this.wide / 2, y = this.high / 2) {
    const zoom = Math.min(LARGEST, Math.max(1, this.zoom * by));
    this.left = x - ((x - this.left) * zoom) / this.zoom;
    this.top = y - ((y - this.top) * zoom) / this.zoom;
    this.zoom = zoom;
    if (zoom === 1) this.left = this.top = 0;
    this.scheduleDraw();
  }

  listen() {
    const held = new Map(); // pointers that are down
    let moved = 0;
    const here = event => ({ x: event.offsetX, y: event.offsetY });
    this.canvas.addEventListener("wheel", event => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", event => {
      held.set(event.pointerId, here(event));
      moved = held.size > 1 ? Infinity : 0;
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", event => {
      const before = held.get(event.pointerId);
      if (!before) {
        this.hover(this.nearest(event.offsetX, event.offsetY));
        return;
      }
      const now = here(event);
      const others = [...held].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      if (others.length) {
        const apart = place => Math.hypot(place.x - others[0].x, place.y - others[0].y) || 1;
        this.zoomBy(apart(now) / apart(before), others[0].x, others[0].y);
      } else if (this.zoom > 1) {
        this.left += now.x - before.x;
        this.top += now.y - before.y;
        this.scheduleDraw();
      }
      moved += Math.hypot(now.x - before.x, now.y - before.y);
      held.set(event.pointerId, now);
    });
    this.canvas.addEventListener("pointerup", event => {
      held.delete(event.pointerId);
      const spot = moved < 5 ? this.nearest(event.offsetX, event.offsetY) : null;
      if (!spot) return;
      // A finger has no hover: its first touch shows what would be opened by the second.
      if (event.pointerType === "mouse" || this.lit === spot.point.place) this.on.open(spot.point.place);
      else this.hover(spot);
    });
    this.canvas.addEventListener("pointercancel", event => held.delete(event.pointerId));
    this.canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") this.hover(null); });
    this.canvas.addEventListener("blur", () => this.hover(null));
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  key(event) {
    if (event.key === "Enter" && this.lit !== null) this.on.open(this.lit);
    if (event.key === "+" || event.key === "=") this.zoomBy(1.5);
    if (event.key === "-") this.zoomBy(1 / 1.5);
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const spots = this.inView();
    const from = spots.find(spot => spot.point.place === this.lit);
    const next = from ? nearestInDirection(event.key, from, spots) : spots[0];
    if (next) this.hover(next);
  }

  buttons() {
    const bar = document.createElement("div");
    bar.className = "zoom";
    for (const [sign, words, act] of [
      ["+", "Enlarge", () => this.zoomBy(1.6)],
      ["−", "Shrink", () => this.zoomBy(1 / 1.6)],
      ["⟲", "All of it", () => this.reset()],
    ]) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: sign, title: words, onclick: act });
      button.setAttribute("aria-label", words);
      bar.append(button);
    }
    return bar;
  }
}
