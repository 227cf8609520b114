// Scatter plot of segments that can be panned and zoomed; if few are in view, they are drawn as thumbnails.

import { nearestInDirection } from "./arrow_keys.js";
import { groupColor } from "./group_list.js";

const MARGIN = 34;
const MAX_THUMBNAILS = 140; // with more points in view, they are drawn as dots
const HIT_RADIUS = 14; // pixels around a point in which it is hit
const MAX_ZOOM = 40;

export class ScatterCanvas {
  // sheet: the element to draw in. on: { hover(index or null, position), open(index) }.
  constructor(sheet, label, on) {
    this.sheet = sheet;
    this.on = on;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `${label}: use the arrow keys to move between segments and Enter to open one`);
    this.sheet.replaceChildren(this.canvas, this.buttons());
    this.points = [];
    this.posters = new Map();
    this.highlighted = null;
    this.onlyGroup = null;
    this.reset();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(sheet);
  }

  // ids, coordinates (x, y from 0 to 1) and groups of all segments.
  show(ids, coordinates, groups) {
    this.ids = ids;
    this.groups = groups;
    this.points = coordinates.map(([x, y], index) => ({ index, x, y: 1 - y }));
    this.resize();
  }

  colorBy(groups) {
    this.groups = groups;
    this.scheduleDraw();
  }

  highlight(index, onlyGroup = this.onlyGroup) {
    this.highlighted = index;
    this.onlyGroup = onlyGroup;
    this.scheduleDraw();
  }

  reset() {
    Object.assign(this, { zoom: 1, left: 0, top: 0 });
    this.scheduleDraw();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = this.sheet.clientWidth;
    this.height = this.sheet.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    this.scheduleDraw();
  }

  // Position of a point in pixels: the unit square stretched over the sheet, zoomed and panned.
  toPixels(point) {
    const x = MARGIN + point.x * (this.width - 2 * MARGIN);
    const y = MARGIN + point.y * (this.height - 2 * MARGIN);
    return { point, x: x * this.zoom + this.left, y: y * this.zoom + this.top };
  }

  inView() {
    return this.points.map(point => this.toPixels(point))
      .filter(({ x, y }) => x > -30 && y > -30 && x < this.width + 30 && y < this.height + 30);
  }

  scheduleDraw() {
    if (this.drawRequest) return;
    this.drawRequest = requestAnimationFrame(() => {
      this.drawRequest = null;
      this.draw();
    });
  }

  draw() {
    if (!this.width || !this.points.length) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    const visible = this.inView();
    const useThumbnails = visible.length <= MAX_THUMBNAILS;
    const size = Math.max(20, Math.min(54, 0.58 * Math.sqrt((this.width * this.height) / visible.length)));
    const radius = Math.max(2, Math.min(6, (90 / Math.sqrt(this.points.length)) * Math.sqrt(this.zoom)));
    const isHighlighted = spot => spot.point.index === this.highlighted;
    const image = spot => (useThumbnails ? this.poster(spot.point.index) : null);
    for (const spot of visible.filter(spot => !isHighlighted(spot))) this.mark(pen, spot, image(spot), size, radius);
    for (const spot of visible.filter(isHighlighted)) this.mark(pen, spot, image(spot), size * 1.3, radius * 1.8, true);
  }

  mark(pen, { point, x, y }, image, size, radius, highlighted = false) {
    const group = this.groups[point.index];
    const isFaint = this.onlyGroup !== null && group !== this.onlyGroup && !highlighted;
    pen.globalAlpha = isFaint ? 0.12 : image || highlighted ? 1 : 0.75;
    pen.fillStyle = pen.strokeStyle = groupColor(group);
    pen.beginPath();
    if (!image) {
      pen.arc(x, y, radius, 0, 2 * Math.PI);
      pen.fill();
    } else {
      const [width, height] = [size, size * 0.75];
      pen.roundRect(x - width / 2, y - height / 2, width, height, 5);
      pen.save();
      pen.clip();
      const scale = Math.max(width / image.naturalWidth, height / image.naturalHeight);
      const [w, h] = [image.naturalWidth * scale, image.naturalHeight * scale];
      pen.drawImage(image, x - w / 2, y - h / 2, w, h);
      pen.restore();
      pen.lineWidth = highlighted ? 3.5 : 2.5;
      pen.stroke();
    }
    if (highlighted && !image) {
      pen.lineWidth = 2;
      pen.strokeStyle = getComputedStyle(this.canvas).color;
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // The poster of a segment if it is loaded; otherwise it is requested, and drawn when it has arrived.
  poster(index) {
    let image = this.posters.get(index);
    if (!image) {
      image = new Image();
      image.onload = () => this.scheduleDraw();
      image.src = `posters/${this.ids[index]}`;
      this.posters.set(index, image);
    }
    return image.complete && image.naturalWidth ? image : null;
  }

  nearest(x, y) {
    let best = null;
    let leastDistance = this.inView().length <= MAX_THUMBNAILS ? 24 : HIT_RADIUS;
    for (const spot of this.inView()) {
      const distance = Math.hypot(spot.x - x, spot.y - y);
      if (distance < leastDistance) [best, leastDistance] = [spot, distance];
    }
    return best;
  }

  hover(spot) {
    const box = this.canvas.getBoundingClientRect();
    this.on.hover(spot ? spot.point.index : null, spot && { x: box.left + spot.x, y: box.top + spot.y });
  }

  zoomBy(by, x = this.width / 2, y = this.height / 2) {
    const zoom = Math.min(MAX_ZOOM, Math.max(1, this.zoom * by));
    this.left = x - ((x - this.left) * zoom) / this.zoom;
    this.top = y - ((y - this.top) * zoom) / this.zoom;
    this.zoom = zoom;
    if (zoom === 1) this.left = this.top = 0;
    this.scheduleDraw();
  }

  listen() {
    const pointers = new Map(); // pointers that are down
    let distanceMoved = 0;
    const position = event => ({ x: event.offsetX, y: event.offsetY });
    this.canvas.addEventListener("wheel", event => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", event => {
      pointers.set(event.pointerId, position(event));
      distanceMoved = pointers.size > 1 ? Infinity : 0;
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", event => {
      const previous = pointers.get(event.pointerId);
      if (!previous) {
        this.hover(this.nearest(event.offsetX, event.offsetY));
        return;
      }
      const current = position(event);
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      if (others.length) {
        const distance = point => Math.hypot(point.x - others[0].x, point.y - others[0].y) || 1;
        this.zoomBy(distance(current) / distance(previous), others[0].x, others[0].y);
      } else if (this.zoom > 1) {
        this.left += current.x - previous.x;
        this.top += current.y - previous.y;
        this.scheduleDraw();
      }
      distanceMoved += Math.hypot(current.x - previous.x, current.y - previous.y);
      pointers.set(event.pointerId, current);
    });
    this.canvas.addEventListener("pointerup", event => {
      pointers.delete(event.pointerId);
      const spot = distanceMoved < 5 ? this.nearest(event.offsetX, event.offsetY) : null;
      if (!spot) return;
      // Touch has no hover: the first touch shows what the second one opens.
      if (event.pointerType === "mouse" || this.highlighted === spot.point.index) this.on.open(spot.point.index);
      else this.hover(spot);
    });
    this.canvas.addEventListener("pointercancel", event => pointers.delete(event.pointerId));
    this.canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") this.hover(null); });
    this.canvas.addEventListener("blur", () => this.hover(null));
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  key(event) {
    if (event.key === "Enter" && this.highlighted !== null) this.on.open(this.highlighted);
    if (event.key === "+" || event.key === "=") this.zoomBy(1.5);
    if (event.key === "-") this.zoomBy(1 / 1.5);
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const spots = this.inView();
    const from = spots.find(spot => spot.point.index === this.highlighted);
    const next = from ? nearestInDirection(event.key, from, spots) : spots[0];
    if (next) this.hover(next);
  }

  buttons() {
    const bar = document.createElement("div");
    bar.className = "zoom";
    for (const [sign, label, action] of [
      ["+", "Zoom in", () => this.zoomBy(1.6)],
      ["−", "Zoom out", () => this.zoomBy(1 / 1.6)],
      ["⟲", "Show all", () => this.reset()],
    ]) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: sign, title: label, onclick: action });
      button.setAttribute("aria-label", label);
      bar.append(button);
    }
    return bar;
  }
}
