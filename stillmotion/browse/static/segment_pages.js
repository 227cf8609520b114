// Segments in their order, asked for in pages as they come into view.

import { fetchJson, runAsync } from "./api.js";

const PAGE = 200;

export class SegmentPages {
  // filters: name and group, either may be empty. changed: called when more is known.
  constructor(filters, changed) {
    this.total = null;
    this.changed = changed;
    this.items = [];
    this.asked = new Set();
    this.stop = new AbortController();
    this.query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
    this.page(0);
  }

  item(place) {
    const found = this.items[place];
    if (!found) this.page(Math.floor(place / PAGE));
    return found;
  }

  page(number) {
    if (this.asked.has(number)) return;
    this.asked.add(number);
    runAsync(async () => {
      const address = `segments?first=${number * PAGE}&count=${PAGE}&${this.query}`;
      const answer = await fetchJson(address, { signal: this.stop.signal });
      this.total = answer.total;
      answer.segments.forEach((segment, i) => { this.items[number * PAGE + i] = segment; });
      this.changed();
    });
  }

  end() {
    this.stop.abort();
  }
}
