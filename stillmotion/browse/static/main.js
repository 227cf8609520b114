// Where the page begins: which view an address shows, and what the keys do.

import { fetchJson, runAsync } from "./api.js";
import { isArrow, focusNeighbor } from "./arrow_keys.js";
import * as drop from "./upload.js";
import { title } from "./group_list.js";
import { MapView } from "./map_view.js";
import { SegmentView } from "./segment_view.js";
import * as moving from "./thumbnails.js";
import * as theme from "./theme.js";
import { GridView } from "./grid_view.js";

const NAMES = ["grid", "segment", "map"];
const filter = document.getElementById("filter");
const help = document.getElementById("about");
const views = { grid: new GridView(), segment: new SegmentView(), map: new MapView() };
let current = null;
let lastCard = null;

// Addresses: #/ the grid, #/group/motion:2 a group on it, #/segment/<id>, #/upload/<key>, #/map.
async function route() {
  const [place = "", rest = ""] = location.hash.replace(/^#\//, "").split("/");
  const key = decodeURIComponent(rest);
  if (place === "segment" && key) {
    open("segment");
    await views.segment.showSegment(key);
  } else if (place === "upload" && key) {
    open("segment");
    await views.segment.showUpload(drop.getUpload(key));
  } else if (place === "map") {
    open("map");
    await views.map.enter();
  } else {
    open("grid");
    await showGrid(place === "group" ? key : "");
  }
}

function open(name) {
  if (current === name) return;
  if (current) views[current].leave?.();
  for (const other of NAMES) document.getElementById(`${other}-view`).hidden = other !== name;
  for (const link of document.querySelectorAll(".views a")) {
    link.toggleAttribute("aria-current", link.dataset.view === name);
  }
  current = name;
  document.documentElement.dataset.view = name;
  if (name === "map") scrollTo(0, 0);
  if (name === "grid") views.grid.enter();
}

async function showGrid(group) {
  const chip = document.getElementById("clear-group");
  chip.hidden = !group;
  views.grid.show({ name: filter.value.trim(), group }, "");
  if (lastCard) document.querySelector(`#grid a[href="${lastCard}"]`)?.focus({ preventScroll: true });
  if (!group) return;
  const [aspect, number] = group.split(":");
  const groups = await fetchJson(`groups/${aspect}`);
  const found = groups.find(one => String(one.number) === number);
  chip.textContent = `${found ? title(found) : "A group"}, by ${aspect} ×`;
  chip.setAttribute("aria-label", `${found ? title(found) : "A group"}: show all segments again`);
}

function typing(event) {
  return event.target.closest?.("input:not([type=range]):not([type=radio]), textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey;
}

const KEYS = {
  "/": () => filter.focus(),
  "?": () => help.showModal(),
  w: () => { location.hash = "#/"; },
  m: () => { location.hash = "#/map"; },
  p: moving.toggle,
  t: theme.toggle,
  "[": () => current === "segment" && views.segment.changeWeight(-10),
  "]": () => current === "segment" && views.segment.changeWeight(10),
  Escape: back,
};

function back() {
  if (current !== "grid") history.length > 1 && hasHistory ? history.back() : (location.hash = "#/");
  else if (filter.value) {
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
  } else if (location.hash.startsWith("#/group")) location.hash = "#/";
}

let hasHistory = false; // from another view of this page, to which Escape can go back

document.addEventListener("keydown", event => {
  if (typing(event) || event.target instanceof HTMLCanvasElement && isArrow(event)) return;
  if (event.target.matches?.("input[type=range], input[type=radio]") && isArrow(event)) return;
  if (isArrow(event) && current !== "map") focusNeighbor(event, document.getElementById(`${current}-view`));
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

let pausing;
filter.addEventListener("input", () => {
  clearTimeout(pausing);
  pausing = setTimeout(() => {
    if (current !== "grid") location.hash = "#/";
    else runAsync(route);
  }, 120);
});
filter.addEventListener("keydown", event => {
  if (event.key === "Escape" && filter.value) {
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
  } else if (event.key === "Escape" || event.key === "Enter" || event.key === "ArrowDown") {
    filter.blur();
    if (event.key !== "Escape") document.querySelector("#grid a.card")?.focus({ preventScroll: true });
  } else return;
  event.preventDefault();
});

document.addEventListener("click", event => {
  const card = event.target.closest?.("#grid a.card");
  if (card) lastCard = card.getAttribute("href");
});
document.getElementById("help").addEventListener("click", () => help.showModal());
help.addEventListener("click", event => { if (event.target === help) help.close(); });
addEventListener("hashchange", () => {
  hasHistory = true;
  runAsync(route);
});

theme.start();
moving.start();
runAsync(route);
runAsync(async () => {
  const about = await fetchJson("about");
  drop.start(about.limit);
  const folder = about.folder.replace(/\/$/, "").split("/").pop();
  document.title = `${folder} – stillmotion`;
  const facts = [`${about.segments} segments of ${about.videos} videos in ${about.folder}, seen by ${about.encoder}.`];
  const skipped = Object.values(about.skipped);
  if (skipped.length) facts.push(`${skipped.length} could not be read:`, ...skipped.slice(0, 20));
  document.getElementById("facts").replaceChildren(...facts.map(words => {
    const line = document.createElement("p");
    line.textContent = words;
    return line;
  }));
});
