// Makes prompts.json: ids of OpenVLA's prompts under Llama 2's vocabulary, and the part of it that they need.
//
// Run it where npm has the vocabulary; the package itself never needs it:
//
//     npm install llama-tokenizer-js && node make_prompts.mjs
//
// A merge of the vocabulary can only act on a prompt where its result is a part of that prompt: those merges, in their
// order, tokenize these prompts as all of them would.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "index.js"));
const library = require.resolve("llama-tokenizer-js");
const llama = (await import(pathToFileURL(library))).default;
const { version } = JSON.parse(readFileSync(join(dirname(library), "package.json")));

const instructions = [
  "put the bowl on the plate",
  "Pick up the alphabet soup and place it in the basket",
  "turn on the stove",
  "open the middle drawer of the cabinet",
  "öffne die Schublade, señor 🙂",
  "put the </s> back",
];
const prompts = instructions.map((instruction) => {
  const prompt = `In: What action should the robot take to ${instruction.toLowerCase()}?\nOut:`;
  return { instruction, prompt, ids: llama.encode(prompt) };
});

const texts = prompts.map(({ prompt }) => "▁" + prompt.replaceAll(" ", "▁"));
const needed = (piece) => texts.some((text) => text.includes(piece));
const merges = [...llama.merges.entries()]
  .sort((one, other) => one[1] - other[1])
  .map(([pair]) => pair.split(" "))
  .filter(([left, right]) => needed(left + right));
const characters = new Set(texts.flatMap((text) => [...text]));
const pieces = {};
llama.vocabById.forEach((piece, id) => {
  const control = id < 259; // <unk>, <s>, </s> and the bytes
  const merged = merges.some(([left, right]) => left + right === piece);
  if (control || merged || characters.has(piece)) pieces[piece] = id;
});
const about = { "llama-tokenizer-js": version, vocabulary: llama.vocabById.length };
const here = dirname(fileURLToPath(import.meta.url));
writeFileSync(join(here, "prompts.json"), JSON.stringify({ about, prompts, pieces, merges }) + "\n");
