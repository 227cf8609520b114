// Where the page begins: which view an address shows, and what the keys do.

import { ask, attempt } from "./ask.js";
import { isArrow, step } from "./arrows.js";
import * as drop from "./drop.js";
import { title } from "./groups.js";
import { Map_ } from "./map.js";
import { Moment } from "./moment.js";
import * as moving from "./moving.js";
import * as theme from "./theme.js";
import { Wall } from "./wall.js";

const NAMES = ["wall", "moment", "map"];
const filter = document.getElementById("filter");
const help = document.getElementById("about");
const views = { wall: new Wall(), moment: new Moment(), map: new Map_() };
let current = null;
let lastCard = null;

// Addresses: #/ the wall, #/group/motion:2 a group on it, #/moment/<id>, #/query/<key>, #/map.
async function route() {
  const [place = "", rest = ""] = location.hash.replace(/^#\//, "").split("/");
  const key = decodeURIComponent(rest);
  if (place === "moment" && key) {
    open("moment");
    await views.moment.showMoment(key);
  } else if (place === "query" && key) {
    open("moment");
    await views.moment.showQuery(drop.recall(key));
  } else if (place === "map") {
    open("map");
    await views.map.enter();
  } else {
    open("wall");
    await showWall(place === "group" ? key : "");
  }
}

function open(name) {
  if (current === name) return;
  if (current) views[current].leave?.();
  for (const other of NAMES) document.getElementById(other).hidden = other !== name;
  for (const link of document.querySelectorAll(".views a")) {
    link.toggleAttribute("aria-current", link.dataset.view === name);
  }
  current = name;
  document.documentElement.dataset.view = name;
  if (name === "map") scrollTo(0, 0);
  if (name === "wall") views.wall.enter();
}

async function showWall(group) {
  const chip = document.getElementById("ungroup");
  chip.hidden = !group;
  views.wall.show({ name: filter.value.trim(), group }, "");
  if (lastCard) document.querySelector(`#grid a[href="${lastCard}"]`)?.focus({ preventScroll: true });
  if (!group) return;
  const [aspect, number] = group.split(":");
  const groups = await ask(`groups/${aspect}`);
  const found = groups.find(one => String(one.number) === number);
  chip.textContent = `${found ? title(found) : "A group"}, by ${aspect} ×`;
  chip.setAttribute("aria-label", `${found ? title(found) : "A group"}: show all moments again`);
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
  "[": () => current === "moment" && views.moment.nudge(-10),
  "]": () => current === "moment" && views.moment.nudge(10),
  Escape: back,
};

function back() {
  if (current !== "wall") history.length > 1 && came ? history.back() : (location.hash = "#/");
  else if (filter.value) {
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
  } else if (location.hash.startsWith("#/group")) location.hash = "#/";
}

let came = false; // from another view of this page, to which Escape can go back

document.addEventListener("keydown", event => {
  if (typing(event) || event.target instanceof HTMLCanvasElement && isArrow(event)) return;
  if (event.target.matches?.("input[type=range], input[type=radio]") && isArrow(event)) return;
  if (isArrow(event) && current !== "map") step(event, document.getElementById(current));
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

let pausing;
filter.addEventListener("input", () => {
  clearTimeout(pausing);
  pausing = setTimeout(() => {
    if (current !== "wall") location.hash = "#/";
    else attempt(route);
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
  came = true;
  attempt(route);
});

theme.start();
moving.start();
attempt(route);
attempt(async () => {
  const about = await ask("about");
  drop.start(about.limit);
  const folder = about.folder.replace(/\/$/, "").split("/").pop();
  document.title = `${folder} – stillmotion`;
  const facts = [`${about.moments} moments of ${about.videos} videos in ${about.folder}, seen by ${about.encoder}.`];
  const skipped = Object.values(about.skipped);
  if (skipped.length) facts.push(`${skipped.length} could not be read:`, ...skipped.slice(0, 20));
  document.getElementById("facts").replaceChildren(...facts.map(words => {
    const line = document.createElement("p");
    line.textContent = words;
    return line;
  }));
});
