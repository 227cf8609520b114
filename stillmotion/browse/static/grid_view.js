// The grid: all segments in rows, of which only those in view, and some about them, are in the page.

import { card } from "./segment_card.js";
import { SegmentPages } from "./segment_pages.js";

const GAP = 10;
const SHAPE = 3 / 4;
const BEYOND = 600; // pixels above and below the view that are drawn, too

export class GridView {
  constructor() {
    this.grid = document.getElementById("grid");
    this.count = document.getElementById("count");
    this.cards = new Map();
    this.listing = null;
    this.scrolled = 0;
    addEventListener("scroll", () => this.scheduleDraw(), { passive: true });
    new ResizeObserver(() => this.scheduleDraw()).observe(this.grid);
  }

  // filters: name and group.
  show(filters, words) {
    const same = JSON.stringify(filters);
    if (this.listing && same === this.shown) return;
    this.listing?.end();
    this.shown = same;
    this.filtered = Boolean(filters.name || filters.group);
    this.words = words;
    this.clear();
    this.scrolled = 0;
    scrollTo(0, 0);
    this.listing = new SegmentPages(filters, () => this.scheduleDraw());
  }

  leave() {
    this.scrolled = scrollY;
  }

  enter() {
    this.draw();
    scrollTo(0, this.scrolled);
    this.draw();
  }

  scheduleDraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    const wide = this.grid.clientWidth;
    if (!wide || !this.listing || this.listing.total === null) return;
    const total = this.listing.total;
    const least = wide < 520 ? 104 : 172;
    const columns = Math.max(2, Math.floor((wide + GAP) / (least + GAP)));
    const width = (wide - GAP * (columns - 1)) / columns;
    const height = width * SHAPE;
    const step = height + GAP;
    this.grid.style.height = `${Math.max(0, Math.ceil(total / columns) * step - GAP)}px`;
    this.tell(total);

    const top = -this.grid.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor((top - BEYOND) / step)) * columns;
    const last = Math.min(total, Math.ceil((top + innerHeight + BEYOND) / step) * columns);
    for (const [place, drawn] of this.cards) {
      if (place < first || place >= last) {
        drawn.remove();
        this.cards.delete(place);
      }
    }
    for (let place = first; place < last; place++) {
      const segment = this.listing.item(place);
      if (!segment) continue;
      let drawn = this.cards.get(place);
      if (!drawn) {
        drawn = card(segment);
        this.cards.set(place, drawn);
        this.insert(drawn, place);
      }
      drawn.style.width = `${width}px`;
      drawn.style.height = `${height}px`;
      drawn.style.left = `${(place % columns) * (width + GAP)}px`;
      drawn.style.top = `${Math.floor(place / columns) * step}px`;
    }
  }

  // In the order of the grid, so that Tab goes along it.
  insert(drawn, place) {
    let next = null;
    let nearest = Infinity;
    for (const [other, element] of this.cards) {
      if (other > place && other < nearest) {
        nearest = other;
        next = element;
      }
    }
    this.grid.insertBefore(drawn, next);
  }

  tell(total) {
    const segments = `${total.toLocaleString("en")} segment${total === 1 ? "" : "s"}`;
    const words = total || !this.filtered ? `${segments}${this.words ? ` ${this.words}` : ""}` : "No segment has this name";
    if (this.count.textContent !== words) this.count.textContent = words;
  }

  clear() {
    for (const drawn of this.cards.values()) drawn.remove();
    this.cards.clear();
  }
}
