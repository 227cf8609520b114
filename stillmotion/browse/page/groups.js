// The groups of one aspect: a colour, a name that can be given, some of its pictures, and the way to the wall.

import { ask, attempt, say } from "./ask.js";
import { colour } from "./colours.js";
import { picture } from "./moving.js";

export const title = group => group.name || `Group ${group.number + 1}`;

// on: { point(number or null) }, told which group is pointed at.
export async function showGroups(list, aspect, on) {
  const groups = await ask(`groups/${aspect}`);
  list.replaceChildren(...groups.map(group => entry(group, aspect, on)));
}

function entry(group, aspect, on) {
  const item = document.createElement("li");
  item.style.setProperty("--own", colour(group.number));

  const name = document.createElement("input");
  Object.assign(name, { value: group.name, placeholder: title({ ...group, name: "" }), maxLength: 80, spellcheck: false });
  name.setAttribute("aria-label", `Name of group ${group.number + 1}`);
  name.addEventListener("change", () => attempt(() => rename(group, aspect, name)));
  name.addEventListener("keydown", event => {
    if (event.key === "Enter") name.blur();
    if (event.key === "Escape") {
      name.value = group.name;
      name.blur();
    }
    event.stopPropagation();
  });

  const show = document.createElement("a");
  show.className = "glance";
  show.href = `#/group/${aspect}:${group.number}`;
  show.setAttribute("aria-label", `Show the ${group.count} moments of ${title(group)} on the wall`);
  show.append(...group.shown.map(picture));
  const count = document.createElement("span");
  count.className = "soft";
  count.textContent = group.count.toLocaleString("en");

  const head = document.createElement("div");
  head.className = "head";
  head.append(name, count);
  item.append(head, show);
  item.addEventListener("pointerenter", () => on.point(group.number));
  item.addEventListener("pointerleave", () => on.point(null));
  item.addEventListener("focusin", () => on.point(group.number));
  item.addEventListener("focusout", () => on.point(null));
  return item;
}

async function rename(group, aspect, name) {
  const wished = name.value.trim();
  try {
    await ask(`groups/${aspect}/${group.number}`, { method: "PUT", body: wished });
    group.name = name.value = wished;
    say(wished ? `Named “${wished}”` : "The name is taken away");
  } catch (error) {
    name.value = group.name;
    throw error;
  }
}
