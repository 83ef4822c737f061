// When pictures are drawn, and what is in them.

import { invite } from "./draw.js";
import { clock, percent } from "./format.js";
import { inWords } from "./number.js";

const CONTEXT = 32; // seconds of context that are shown if the model does not say
const SLOW = 1000; // milliseconds between pictures for those who want little motion
const WORDS = 5000; // milliseconds between descriptions for those who hear the page
const byId = (id) => document.getElementById(id);
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

function draw(page, { signal, chart }) {
  const { player, model } = page;
  if (!model) return;
  if (player) {
    signal.draw(player, page.ends, model.stream?.span ?? CONTEXT, page.drivers.explanation);
    page.begin = player.recording.start;
    page.now = player.position;
    const share = player.next ? player.sent / player.next : 0;
    byId("sent").textContent =
      `${player.sent.toLocaleString("en")} of ${player.next.toLocaleString("en")} observations ` +
      `sent (${percent(share)}), at ${clock(player.position)} of ${clock(player.recording.end)}`;
    if (player.playing) page.drivers.poll(player, page.answers.at(-1));
  } else if (!page.stream) {
    invite(byId("signal"), "Press Start: the signal runs here.");
  }
  if (page.answers.length === 0) {
    invite(byId("answers"), "What the model says comes here.");
    return;
  }
  chart.draw({
    answers: page.answers,
    begin: page.begin,
    now: page.now,
    thinning: player?.thinning ?? null,
    alarms: page.alarms,
    classes: model.classes?.map(String) ?? null,
  });
}

/** Pictures in words. */
function describePictures(page) {
  const last = page.answers.at(-1);
  if (!last) return;
  const say = (id, words) => byId(id).setAttribute("aria-label", words);
  say("answers", `Predictions up to ${clock(last.time)}: now ${inWords(last)}`);
  if (!page.player) return;
  const names = page.model.channels.join(", ");
  say("signal", `Signal of ${names} up to ${clock(page.player.position)}`);
  const { words } = page.drivers;
  say("context", words ? `Change of the answer by each window: ${words}` : "The last observations");
}

export function startPictures(page, charts) {
  let drawn = -Infinity;
  const frame = (now) => {
    if (!reduced.matches || now - drawn >= SLOW) {
      drawn = now;
      draw(page, charts);
    }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  setInterval(() => describePictures(page), WORDS);
}
