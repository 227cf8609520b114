// A moment as a picture that leads to it, with its name and, among what was found, how alike it is.

import { picture, wake } from "./moving.js";

export function card(moment, alike = null) {
  const link = document.createElement("a");
  link.className = "card";
  link.href = `#/moment/${moment.id}`;
  link.draggable = false;
  const image = picture(moment.id);
  image.loading = "lazy";
  image.addEventListener("load", () => image.classList.toggle("tall", image.naturalWidth < 0.9 * image.naturalHeight));
  wake(link, image);
  const label = document.createElement("span");
  label.className = "label";
  label.textContent = shortName(moment);
  const frame = document.createElement("span");
  frame.className = "frame";
  frame.append(image, label);
  link.append(frame);
  let spoken = `${moment.path}, ${span(moment)}`;
  if (alike) {
    link.append(bars(moment));
    spoken += `, alike by look ${moment.look.toFixed(2)}, by motion ${moment.motion.toFixed(2)}`;
  }
  link.setAttribute("aria-label", spoken);
  link.title = alike ? `${moment.path}\nlook ${moment.look.toFixed(2)} · motion ${moment.motion.toFixed(2)}` : moment.path;
  return link;
}

function bars(moment) {
  const both = document.createElement("span");
  both.className = "bars";
  both.setAttribute("aria-hidden", "true");
  for (const aspect of ["look", "motion"]) {
    const bar = document.createElement("span");
    bar.className = aspect;
    const filled = document.createElement("i");
    filled.style.width = `${100 * Math.min(1, Math.max(0, moment[aspect]))}%`;
    bar.append(filled);
    both.append(bar);
  }
  return both;
}

export function fileName(moment) {
  return moment.path.slice(moment.path.lastIndexOf("/") + 1);
}

export function folderName(moment) {
  return moment.path.slice(0, Math.max(0, moment.path.lastIndexOf("/")));
}

// A name, and the time where a moment is a part of its video.
function shortName(moment) {
  return isPart(moment) ? `${fileName(moment)} · ${clock(moment.start)}` : fileName(moment);
}

export function isPart(moment) {
  return moment.end - moment.start < moment.duration - 0.25;
}

export function span(moment) {
  return isPart(moment) ? `${clock(moment.start)} to ${clock(moment.end)} of ${clock(moment.duration)}` : clock(moment.duration);
}

export function clock(seconds) {
  const tenths = seconds < 10 && seconds % 1 ? (Math.round(seconds * 10) % 10) : 0;
  const whole = tenths ? Math.floor(seconds) : Math.round(seconds);
  const two = number => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}${tenths ? `.${tenths}` : ""}`;
}
