// The page begins here: it asks for the model, and listens to the controls.

import { arrange, describe, forecasts } from "./about.js";
import { alarmWords, settings } from "./alarms.js";
import { request, setToken } from "./api.js";
import { Drivers } from "./drivers.js";
import { chart, complain, look, page, signal, status } from "./page.js";
import { startPictures } from "./pictures.js";
import { readPlace, writePlace } from "./place.js";
import { Recording } from "./recording.js";
import { WATCH, choose, fillSources, open, play, playOrPause, speed, watch } from "./sources.js";

const AGAIN = 3000; // milliseconds until a service that does not answer is asked once more
const byId = (id) => document.getElementById(id);

async function begin() {
  try {
    page.model = await request("v1/model");
    page.recordings = (await request("v1/demo")).recordings;
  } catch (error) {
    if (error.status === 401) askForToken();
    else {
      status("bad", "no connection");
      complain(`The service cannot be used: ${error.message}. It is asked again.`);
      setTimeout(begin, AGAIN);
    }
    return;
  }
  complain("");
  page.alarms = (page.model.alarms ?? []).map((alarm) => ({
    ...alarm,
    words: alarmWords(alarm, page.model),
  }));
  byId("log-text").textContent = settings(page.alarms, page.model);
  page.drivers = new Drivers(byId("channels"), byId("drivers-text"), page.model);
  if (forecasts(page.model)) page.recordings.unshift(Recording.example(page.model));
  describe(page.model);
  arrange(page.model);
  fillSources();
  goToPlace();
  if (page.model.stream?.available === false) {
    byId("play").disabled = true;
    byId("source").disabled = true;
    complain("This model is served without streams: it is not causal. Serve it with --span.");
  }
  document.documentElement.dataset.ready = "true";
}

function askForToken() {
  const dialog = byId("token-dialog");
  byId("token-form").addEventListener(
    "submit",
    () => {
      setToken(byId("token").value);
      begin();
    },
    { once: true },
  );
  dialog.showModal();
}

/** As the address has it. A stream is watched at once; a recording plays by itself where the
 * address says nothing and motion is welcome, else it waits for the button. */
function goToPlace() {
  const fresh = location.hash === "" && !matchMedia("(prefers-reduced-motion: reduce)").matches;
  readPlace();
  showDropped();
  choose();
  const named = byId("stream-id").value !== "" && byId("stream-id").checkValidity();
  if (byId("source").value === WATCH && named) watch();
  else if (fresh && !byId("play").disabled && page.model.stream?.available !== false) play();
}

function showDropped() {
  const share = Number(byId("dropped").value);
  byId("dropped-text").textContent = `${share} %`;
  byId("dropped").setAttribute("aria-valuetext", `${share} percent dropped`);
  page.player?.setDropped(share / 100);
}

byId("source").addEventListener("change", choose);
byId("play").addEventListener("click", playOrPause);
byId("restart").addEventListener("click", () => {
  choose();
  play();
});
byId("file").addEventListener("change", open);
byId("watch").addEventListener("submit", (event) => {
  event.preventDefault();
  watch();
});
byId("speed").addEventListener("change", () => {
  if (page.player) page.player.speed = speed();
  writePlace();
});
byId("dropped").addEventListener("input", showDropped);
byId("dropped").addEventListener("change", writePlace);
byId("target").addEventListener("change", (event) => look(Number(event.target.value)));
addEventListener("hashchange", () => {
  // Links inside the page have no "=".
  if (page.model && location.hash.includes("=")) goToPlace();
});
addEventListener("pagehide", () => page.player?.stop());
addEventListener("pageshow", (event) => {
  if (event.persisted && page.model) choose(); // what played was ended
});

begin();
startPictures(page, { signal, chart });
