// Segments in order, loaded page by page as they come into view.

import { fetchJson, runAsync } from "./api.js";

const PAGE_SIZE = 200;

export class SegmentPages {
  // filters: name and group, either may be empty. onChange: called when a page has been loaded.
  constructor(filters, onChange) {
    this.total = null;
    this.onChange = onChange;
    this.items = [];
    this.requested = new Set();
    this.stop = new AbortController();
    this.query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
    this.load(0);
  }

  item(position) {
    const segment = this.items[position];
    if (!segment) this.load(Math.floor(position / PAGE_SIZE));
    return segment;
  }

  load(number) {
    if (this.requested.has(number)) return;
    this.requested.add(number);
    runAsync(async () => {
      const url = `segments?first=${number * PAGE_SIZE}&count=${PAGE_SIZE}&${this.query}`;
      const page = await fetchJson(url, { signal: this.stop.signal });
      this.total = page.total;
      page.segments.forEach((segment, i) => { this.items[number * PAGE_SIZE + i] = segment; });
      this.onChange();
    });
  }

  end() {
    this.stop.abort();
  }
}
