// Grid of all segments; only the rows in view, and some around them, are in the page.

import { card, plural } from "./segment_card.js";
import { SegmentPages } from "./segment_pages.js";

const GAP = 10;
const ASPECT_RATIO = 3 / 4;
const MARGIN = 600; // pixels above and below the view that are drawn too

export class GridView {
  constructor() {
    this.grid = document.getElementById("grid");
    this.count = document.getElementById("count");
    this.cards = new Map();
    this.pages = null;
    this.scrollPosition = 0;
    addEventListener("scroll", () => this.scheduleDraw(), { passive: true });
    new ResizeObserver(() => this.scheduleDraw()).observe(this.grid);
  }

  // filters: name and group, either may be empty.
  show(filters) {
    const key = JSON.stringify(filters);
    if (this.pages && key === this.key) return;
    this.pages?.end();
    this.key = key;
    this.isFiltered = Boolean(filters.name || filters.group);
    this.clear();
    this.scrollPosition = 0;
    scrollTo(0, 0);
    this.pages = new SegmentPages(filters, () => this.scheduleDraw());
  }

  leave() {
    this.scrollPosition = scrollY;
  }

  enter() {
    this.draw();
    scrollTo(0, this.scrollPosition);
    this.draw();
  }

  scheduleDraw() {
    if (this.drawRequest) return;
    this.drawRequest = requestAnimationFrame(() => {
      this.drawRequest = null;
      this.draw();
    });
  }

  draw() {
    const gridWidth = this.grid.clientWidth;
    if (!gridWidth || !this.pages || this.pages.total === null) return;
    const total = this.pages.total;
    const minWidth = gridWidth < 520 ? 104 : 172;
    const columns = Math.max(2, Math.floor((gridWidth + GAP) / (minWidth + GAP)));
    const width = (gridWidth - GAP * (columns - 1)) / columns;
    const height = width * ASPECT_RATIO;
    const step = height + GAP;
    this.grid.style.height = `${Math.max(0, Math.ceil(total / columns) * step - GAP)}px`;
    this.showCount(total);

    const top = -this.grid.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor((top - MARGIN) / step)) * columns;
    const last = Math.min(total, Math.ceil((top + innerHeight + MARGIN) / step) * columns);
    for (const [position, element] of this.cards) {
      if (position < first || position >= last) {
        element.remove();
        this.cards.delete(position);
      }
    }
    for (let position = first; position < last; position++) {
      const segment = this.pages.item(position);
      if (!segment) continue;
      let element = this.cards.get(position);
      if (!element) {
        element = card(segment);
        this.cards.set(position, element);
        this.insert(element, position);
      }
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
      element.style.left = `${(position % columns) * (width + GAP)}px`;
      element.style.top = `${Math.floor(position / columns) * step}px`;
    }
  }

  // In the order of the grid, so that Tab follows it.
  insert(element, position) {
    let next = null;
    let nearest = Infinity;
    for (const [otherPosition, other] of this.cards) {
      if (otherPosition > position && otherPosition < nearest) {
        nearest = otherPosition;
        next = other;
      }
    }
    this.grid.insertBefore(element, next);
  }

  showCount(total) {
    const text = total || !this.isFiltered ? plural(total, "segment") : "No segment has this name";
    if (this.count.textContent !== text) this.count.textContent = text;
  }

  clear() {
    for (const element of this.cards.values()) element.remove();
    this.cards.clear();
  }
}
