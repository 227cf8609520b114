// What the server is asked. Its complaints become errors with its own words.

export class Complaint extends Error {
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

export async function ask(address, options = {}) {
  const answer = await reach(address, options);
  return answer.status === 204 ? null : answer.json();
}

export async function blob(address, options = {}) {
  return (await reach(address, options)).blob();
}

async function reach(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Complaint("The page has lost its server. Start `stillmotion browse` again.", 0);
  }
  if (answer.ok) return answer;
  let words = `${answer.status} ${answer.statusText}`;
  try {
    words = (await answer.json()).error;
  } catch {
    // no words of the server's own
  }
  throw new Complaint(words, answer.status);
}

// A line at the foot of the page, for a while.
let hiding;
export function say(words) {
  const line = document.getElementById("said");
  line.textContent = words;
  line.hidden = !words;
  clearTimeout(hiding);
  hiding = setTimeout(() => { line.hidden = true; }, 7000);
}

// Runs what a click or a key asks for; what goes wrong is said.
export function attempt(work) {
  Promise.resolve().then(work).catch(error => {
    if (error.name !== "AbortError") say(error.message);
  });
}
