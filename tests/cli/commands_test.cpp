// SPDX-License-Identifier: Apache-2.0
// Every command's normal results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/cli/program.h"
#include "tests/fuzz/program_input.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kTiny = SWITCHYARD_TEST_DATA "/tiny/";
const std::string kText = SWITCHYARD_TEST_DATA "/demo/val16.txt";

const json& demo() {
  static const json expected = json::parse(read_file(SWITCHYARD_TEST_DATA "/demo/expected.json"))["program"];
  return expected;
}

TEST(Help, OfEveryCommand) {
  const Ran whole = run_program({"--help"});
  EXPECT_EQ(whole.exit, 0);
  for (const char* command :
       {"run", "chat", "convert", "serve", "inspect", "backends", "plan", "perplexity", "logits", "config"}) {
    EXPECT_THAT(whole.out, HasSubstr(command));
    const Ran ran = run_program({command, "--help"});
    EXPECT_EQ(ran.exit, 0) << command;
    EXPECT_EQ(ran.err, "") << command;
    EXPECT_THAT(ran.out, HasSubstr(std::string("Usage: switchyard ") + command));
  }
  EXPECT_EQ(run_program({"help", "run"}).out, run_program({"run", "--help"}).out);
  EXPECT_EQ(run_program({"help"}).out, whole.out);
  EXPECT_THAT(run_program({"--version"}).out,
              MatchesRegex("switchyard 0\\.1\\.0( \\(commit [0-9a-f]+(-dirty)?\\))?\n"));
}

TEST(Run, GreedyTextIsTheRecordedOne) {
  for (const json& prompt : demo()["prompts"]) {
    const std::string text = prompt["text"];
    const Ran ran = run_program({"run", "--temp", "0", "-n", "64", text});
    EXPECT_EQ(ran.exit, 0) << ran.err;
    EXPECT_EQ(ran.out, text + prompt["greedy_text"].get<std::string>() + "\n");
  }
}

TEST(Run, TakesItsPromptFromThreePlaces) {
  const TemporaryFolder folder;
  const std::string prompt = "The ship had been at sea";
  const Arguments common = {"run", "--temp", "0", "-n", "5"};
  const auto with = [&](const Arguments& more, const std::string& input) {
    Arguments all = common;
    all.insert(all.end(), more.begin(), more.end());
    const Ran ran = run_program(all, input);
    EXPECT_EQ(ran.exit, 0) << ran.err;
    return ran.out;
  };
  const std::string out = with({prompt}, "");
  EXPECT_THAT(out, StartsWith(prompt));
  EXPECT_EQ(with({}, prompt), out);
  EXPECT_EQ(with({"-f", folder.write("prompt.txt", prompt)}, ""), out);
}

TEST(Run, PrintsWhatRepeatsIt) {
  const Ran first = run_program({"run", "-n", "12", "--temp", "1.5", "--ignore-eos", "It was"});
  EXPECT_THAT(first.err,
              AllOf(HasSubstr("on reference:0; seed "), HasSubstr("load "), HasSubstr("prefill 2 tokens in "),
                    HasSubstr("decode "), HasSubstr(" tokens in "), HasSubstr("tok/s"), HasSubstr("stopped: ")));
  const size_t at = first.err.find("seed ") + 5;
  const std::string seed = first.err.substr(at, first.err.find(';', at) - at);
  EXPECT_EQ(run_program({"run", "-n", "12", "--temp", "1.5", "--ignore-eos", "--seed", seed, "It was"}).out, first.out);
  const Ran other = run_program({"run", "-n", "12", "--temp", "1.5", "--ignore-eos", "--seed", seed + "1", "It was"});
  EXPECT_NE(other.out, first.out);
  EXPECT_NE(run_program({"run", "-n", "12", "--temp", "1.5", "--ignore-eos", "It was"}).out, first.out)
      << "a seed of its own each time";
}

TEST(Run, Json) {
  const json& prompt = demo()["prompts"][0];
  const json out = run_json({"run", "--json", "--temp", "0", "-n", "10", prompt["text"]});
  EXPECT_EQ(out["prompt_ids"], prompt["ids"]);
  const auto greedy = prompt["greedy_ids"].get<std::vector<int>>();
  EXPECT_EQ(out["ids"], std::vector<int>(greedy.begin(), greedy.begin() + 10));
  EXPECT_THAT(prompt["greedy_text"].get<std::string>(), StartsWith(out["text"].get<std::string>()));
  EXPECT_EQ(out["stopped"], "length");
  EXPECT_EQ(out["devices"], json::array({"reference:0"}));
  for (const char* key : {"load_seconds", "prefill_seconds", "decode_seconds"}) EXPECT_GE(out[key].get<double>(), 0);
}

// A text that repeats itself, by a penalty that makes seen tokens likelier.
TEST(Run, SpeculationChangesNoToken) {
  const auto told = [](const std::string& speculation) {
    return run_json({"run", "--json", "--deterministic", "--ignore-eos", "--seed", "3", "--temp", "0.4",
                     "--repeat-penalty", "0.7", "-n", "150", "--speculate", speculation, "The ship had been at sea"});
  };
  const json off = told("off");
  EXPECT_EQ(off["drafted"], 0);
  for (const char* on : {"auto", "mtp", "ngram"}) {
    const json out = told(on);
    EXPECT_EQ(out["ids"], off["ids"]) << on;
    EXPECT_GE(out["drafted"], out["accepted"]);
    EXPECT_TRUE(on == std::string("auto") || out["accepted"] > 20) << out["accepted"];
  }
  const json model = told("model:" SWITCHYARD_DEMO_MODEL);
  EXPECT_EQ(model["ids"], off["ids"]);
  EXPECT_GT(model["drafted"], 0) << "a first guess is tried";
  const Ran refused = run_program({"run", "--speculate", "eagle", "The"});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_THAT(refused.err, HasSubstr("--speculate"));
  const Ran missing = run_program({"run", "--speculate", "model:/nowhere.swy", "The"});
  EXPECT_NE(missing.exit, 0);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere.swy"));
}

TEST(Run, StopsWhenTheContextIsFull) {
  const json out = run_json({"run", "--json", "--ignore-eos", "--ctx", "8", "-n", "50", "It was"});
  EXPECT_EQ(out["stopped"], "context");
  EXPECT_EQ(out["prompt_ids"].size() + out["ids"].size(), 9u) << "the last one is drawn, not fed";
}

TEST(Run, ChunksDoNotChangeTheText) {
  const std::string prompt = demo()["prompts"][0]["text"];
  const std::string whole = run_program({"run", "--temp", "0", "-n", "20", prompt}).out;
  EXPECT_EQ(run_program({"run", "--temp", "0", "-n", "20", "--chunk", "4", prompt}).out, whole);
}

// The header of a .npy file of float32, and its values.
std::vector<float> read_npy(const std::string& path, const std::string& shape) {
  const std::string file = read_file(path);
  EXPECT_THAT(file, StartsWith(std::string("\x93NUMPY\x01\x00", 8)));
  const size_t header = 10 + static_cast<unsigned char>(file[8]) + 256 * static_cast<unsigned char>(file[9]);
  EXPECT_EQ(header % 64, 0u);
  EXPECT_THAT(file.substr(10, header - 10), AllOf(HasSubstr("'descr': '<f4'"), HasSubstr("'fortran_order': False"),
                                                  HasSubstr("'shape': " + shape), EndsWith("\n")));
  std::vector<float> values((file.size() - header) / 4);
  std::memcpy(values.data(), file.data() + header, values.size() * 4);
  return values;
}

TEST(Logits, AreTheRecordedOnes) {
  const TemporaryFolder folder;
  const json& prompt = demo()["prompts"][1];
  std::string ids;
  for (const int id : prompt["ids"]) ids += std::to_string(id) + ", ";
  const Ran ran = run_program({"logits", "--ids", ids, "--out", folder.path("x.npy"), "--chunk", "4"});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("x.npy: float32 [9, 4096]"));
  const std::vector<float> logits = read_npy(folder.path("x.npy"), "(9, 4096)");
  ASSERT_EQ(logits.size(), 9u * 4096);
  for (size_t i = 0; i < 8; ++i) {
    const size_t id = prompt["last_top8_ids"][i];
    EXPECT_NEAR(logits[8 * 4096 + id], prompt["last_top8_logits"][i].get<float>(), 1e-4);
  }
}

TEST(Logits, OfAProgramWithoutTokenizer) {
  const TemporaryFolder folder;
  const Ran made = run_program({"convert", kTiny + "key-value-dims", "-o", folder.path("x.swy"), "--quant", "bf16"});
  EXPECT_EQ(made.exit, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("note: no tokenizer: the program takes token ids only (logits, plan, inspect)"));
  const json prompt = json::parse(read_file(kTiny + "key-value-dims/expected.json"))["prompts"][1];
  std::string ids;
  for (const int id : prompt["ids"]) ids += std::to_string(id) + " ";
  const Ran ran = run_program({"logits", folder.path("x.swy"), "--ids", ids, "--out", folder.path("x.npy")});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  const std::vector<float> logits = read_npy(folder.path("x.npy"), "(3, 128)");
  const std::string recorded = read_file(kTiny + "key-value-dims/short.f32");
  ASSERT_EQ(logits.size() * 4, recorded.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    float want = 0;
    std::memcpy(&want, recorded.data() + 4 * i, 4);
    ASSERT_NEAR(logits[i], want, 1e-3);
  }
  EXPECT_EQ(run_program({"plan", folder.path("x.swy")}).exit, 0);
  EXPECT_EQ(run_json({"inspect", folder.path("x.swy"), "--json"})["tokenizer"], false);
}

TEST(Perplexity, OfTheFirstWindow) {
  const json out = run_json({"perplexity", "--file", kText, "--windows", "1", "--json"});
  EXPECT_NEAR(out["nll"].get<double>(), demo()["nll_by_window"][0].get<double>(), 1e-4);
  EXPECT_NEAR(std::log(out["perplexity"].get<double>()), out["nll"].get<double>(), 1e-9);
  EXPECT_EQ(out["tokens"], 511);
  const json steps = run_json({"perplexity", "--file", kText, "--windows", "1", "--step", "100", "--json"});
  EXPECT_EQ(steps["step"], 100);
  EXPECT_EQ(steps["tokens"], out["tokens"]);
  EXPECT_NEAR(steps["nll"].get<double>(), out["nll"].get<double>(), 1e-2);
  const Ran ran = run_program({"perplexity", "--file", kText, "--ctx", "64", "--windows", "1"});
  EXPECT_THAT(ran.out, HasSubstr(" nats per token, perplexity "));
}

TEST(Perplexity, AgainstItselfThereIsNoDivergence) {
  const json out = run_json(
      {"perplexity", "-f", kText, "--ctx", "64", "--windows", "2", "--against", SWITCHYARD_DEMO_MODEL, "--json"});
  EXPECT_EQ(out["window"], 64);
  EXPECT_EQ(out["tokens"], 126);
  EXPECT_NEAR(out["kl"].get<double>(), 0, 1e-9);
  EXPECT_EQ(out["top1_agreement"], 1.0);
}

TEST(Inspect, TellsWhatAProgramHolds) {
  const json out = run_json({"inspect", "--json", "--tensors"});
  EXPECT_EQ(out["architecture"], "qwen3_5_moe");
  EXPECT_EQ(out["quantization"], "i4 group row");
  EXPECT_EQ(out["parameters"], 17640224);
  EXPECT_EQ(out["file_bytes"], std::filesystem::file_size(SWITCHYARD_DEMO_MODEL));
  EXPECT_EQ(out["tokenizer"], true);
  EXPECT_EQ(out["tensor_list"].size(), out["tensors"].get<size_t>());
  EXPECT_EQ(run_json({"inspect", "--verify", "--json"})["weights"], "verified");
  const Ran ran = run_program({"inspect", SWITCHYARD_DEMO_MODEL, "--tensors"});
  EXPECT_THAT(ran.out, HasSubstr("packed_bytes     none\n"));
  EXPECT_THAT(ran.out, HasSubstr("ops              add 16, attention 2, "));
  EXPECT_THAT(ran.out, AllOf(HasSubstr("architecture"), HasSubstr("lm_head.weight"), HasSubstr("[4096,256]")));
}

// What a file says reaches the terminal as text, not as something that it obeys.
TEST(Inspect, ShowsControlCharacters) {
  const TemporaryFolder folder;
  std::string file = read_file(SWITCHYARD_DEMO_MODEL);
  const std::string architecture("\x0b\0\0\0qwen3_5_moe", 15);
  ASSERT_NE(file.find(architecture), std::string::npos);
  file.replace(file.find(architecture) + 4, 11, "\x1b]0;it\a\xc2\x9b\xff.");
  seal_file(std::as_writable_bytes(std::span(file)));
  const std::string path = folder.write("x.swy", file);
  EXPECT_THAT(run_program({"inspect", path}).out, HasSubstr("\\x1B]0;it\\x07\\xC2\\x9B\\xFF."));
  EXPECT_THAT(run_program({"inspect", path, "--json"}).out, HasSubstr("\\u001b]0;it\\u0007\\u009b\xef\xbf\xbd."));
}

TEST(Gguf, IsConvertedOnceAndShownAsItIs) {
  const TemporaryFolder folder;
  const std::string file = SWITCHYARD_TEST_DATA "/gguf/three-value-heads.gguf";
  Conditions kept;
  kept.environment["SWITCHYARD_MODELS"] = folder.path("models");
  const auto shown = run_json({"inspect", file, "--tensors", "--json"}, kept);
  EXPECT_EQ(shown["format"], "GGUF version 3");
  EXPECT_EQ(shown["metadata"]["general.architecture"], "\"qwen35moe\"");
  EXPECT_EQ(shown["tensor_list"].size(), shown["tensors"].get<size_t>());
  EXPECT_FALSE(std::filesystem::exists(folder.path("models"))) << "it was converted";
  const auto logits = [&](const std::string& out) {
    return run_program({"logits", "-m", file, "--backend", "reference", "--ids", "1,2,3", "--out", folder.path(out)},
                       "", kept);
  };
  const Ran first = logits("a"), second = logits("b");
  ASSERT_EQ(first.exit, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("is converted once, into " + folder.path("models")));
  EXPECT_THAT(second.err, Not(HasSubstr("converted")));
  EXPECT_EQ(read_file(folder.path("a")), read_file(folder.path("b")));
  EXPECT_FALSE(read_file(folder.path("a")).empty());
}

TEST(Inspect, WritesDequantizedWeights) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_program({"convert", kTiny + "half-rotary", "-o", folder.path("x.swy")}).exit, 0);
  ASSERT_EQ(run_program({"inspect", folder.path("x.swy"), "--dequantize", folder.path("x.st")}).exit, 0);
  const std::string file = read_file(folder.path("x.st"));
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const json entries = json::parse(file.substr(8, header));
  EXPECT_EQ(entries["lm_head.weight"]["shape"], json::array({128, 48}));
  EXPECT_EQ(entries["lm_head.weight"]["dtype"], "F32");
}

TEST(BenchOps, TellsTimeRatesAndErrorOfEveryKernel) {
  const json out = run_json({"bench", "ops", "--rows", "1,8", "--op", "linear_add", "--seconds", "0.001", "--check",
                             "--no-probes", "--json"});
  ASSERT_EQ(out["ops"].size(), 2u);
  for (const json& op : out["ops"]) {
    EXPECT_EQ(op["kernel"], "linear_add.plain");
    EXPECT_EQ(op["per_step"], 8);
    EXPECT_GT(op["microseconds"], 0);
    EXPECT_LE(op["best"], op["microseconds"]);
    EXPECT_NEAR(op["gbs"].get<double>() * op["microseconds"].get<double>() * 1e3, op["weight_bytes"].get<double>(), 1);
    EXPECT_EQ(op["error"], 0) << "reference against itself";
    EXPECT_EQ(op["bound_share"], 0) << "the machine was not measured";
  }
  EXPECT_EQ(out["ops"][1]["operations"], 8 * out["ops"][0]["operations"].get<double>());
  EXPECT_THAT(run_program({"bench", "ops", "--rows", "1", "--op", "linear_add", "--seconds", "0.001"}).out,
              AllOf(HasSubstr("linear_add 256+256 -> 256, i4"), HasSubstr("TFLOP/s"), HasSubstr("memory read "),
                    ContainsRegex("[0-9]%"), Not(HasSubstr("error"))));
}

TEST(BenchOps, FailsIfAKernelIsTooFarFromTheReference) {
  const std::string acme = SWITCHYARD_PLAN_FIXTURES "/switchyard_acme.so";
  const auto errors = [&](const std::string& wrong, const std::string& op) {
    return run_program({"bench", "ops", "-m", SWITCHYARD_NAMED_PROGRAM, "--backend-lib", acme, "--backend",
                        "acme,reference", "--set", "acme.wrong=" + wrong, "--op", op, "--rows", "1", "--seconds",
                        "0.001", "--max-error", "0.001", "--no-probes"});
  };
  const Ran right = errors("0", "acme.gelu/1");
  EXPECT_EQ(right.exit, 0) << right.err;
  EXPECT_THAT(right.out, AllOf(HasSubstr("worst row"), Not(HasSubstr("memory read "))));
  const Ran wrong = errors("1", "acme.gelu/1");
  EXPECT_EQ(wrong.exit, 1);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("gelu.acme, acme.gelu/1"), HasSubstr("--max-error allows 0.001")));
  EXPECT_EQ(errors("2", "acme.conv/1").exit, 1) << "it loses its state";
}

TEST(BenchOps, RefusesWhatItDoesNotKnow) {
  const Ran ran = run_program({"bench", "ops", "--op", "warp"});
  EXPECT_EQ(ran.exit, 2);
  EXPECT_THAT(ran.err, HasSubstr("unknown operation 'warp'; operations are "));
  EXPECT_EQ(run_program({"bench", "ops", "--rows", "0"}).exit, 2);
}

TEST(Synth, MakesTheSameProgramAsItsShortForm) {
  const TemporaryFolder folder;
  const std::string config = kTiny + "half-rotary/config.json", path = folder.path("s.swy");
  const Ran made =
      run_program({"synth", "--config", config, "--layers", "3", "--group", "32", "--seed", "5", "-o", path});
  ASSERT_EQ(made.exit, 0) << made.err;
  EXPECT_EQ(run_program({"inspect", path, "--verify"}).exit, 0);
  const auto logits = [&](const std::string& model) {
    const std::string to = folder.path("x.npy");
    const Ran ran = run_program({"logits", "-m", model, "--ids", "1 2 3", "--out", to});
    EXPECT_EQ(ran.exit, 0) << ran.err;
    return read_file(to);
  };
  const std::string stored = logits(path);
  EXPECT_EQ(stored, logits("synth:" + config + ",layers=3,group=32,seed=5"));
  EXPECT_NE(stored, logits("synth:" + config + ",layers=3,group=32,seed=6"));
}

TEST(Synth, PrintsHowATextSpreadsOverItsExperts) {
  const TemporaryFolder folder;
  const Arguments make = {"synth", "--config", kTiny + "half-rotary/config.json", "-o", folder.path("s.swy")};
  const Ran made = run_program(make);
  EXPECT_EQ(made.exit, 0);
  EXPECT_THAT(made.err, AllOf(HasSubstr("experts chosen over 512 tokens"), HasSubstr("layers.0.moe")));
  Arguments quiet = make;
  quiet.push_back("--no-histogram");
  EXPECT_THAT(run_program(quiet).err, Not(HasSubstr("experts chosen")));
}

TEST(Synth, TakesTextFromAVocabularyOfThatSizeOn) {
  const std::string config = "synth:" + kTiny + "half-rotary/config.json";
  const Ran ran = run_program({"run", "-m", config + ",vocab=4096", "-n", "3", "Once upon a time"});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_THAT(run_program({"run", "-m", config + ",vocab=4095", "hi"}).err, HasSubstr("no tokenizer"));
}

TEST(Diverge, ComparesTwoWaysOfComputing) {
  const Arguments base = {"diverge", "--prompts", "2", "--length", "8", "-n", "6"};
  const auto with = [&](const Arguments& more) {
    Arguments all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const json same = run_json(with({"--json"}));
  ASSERT_EQ(same["prompts"].size(), 2u);
  EXPECT_EQ(same["prompts"][0]["diverged"], false);
  const std::string model = "synth:" + kTiny + "half-rotary/config.json,vocab=4096,seed=";
  const json other = run_json(with({"-m", model + "1", "--against-model", model + "2", "--json"}));
  EXPECT_EQ(other["prompts"][0]["position"], 0) << "other weights agree on nothing";
  EXPECT_GT(other["prompts"][0]["other_gap"], 0);
  EXPECT_THAT(run_program(with({"-m", model + "1", "--against-model", model + "2"})).out,
              HasSubstr("2 of 2 prompts differ within 6 tokens; the median agrees for 0"));
  const Ran ran = run_program(with({"--against-model", "synth:" + kTiny + "half-rotary/config.json,vocab=64"}));
  EXPECT_EQ(ran.exit, 2);
  EXPECT_THAT(ran.err, HasSubstr("has a different vocabulary"));
}

TEST(Experts, AreCountedPerLayer) {
  const json out = run_json({"experts", "--tokens", "32", "--json"});
  EXPECT_EQ(out["tokens"], 32);
  ASSERT_EQ(out["layers"].size(), 8u);
  for (const json& l : out["layers"]) {
    EXPECT_EQ(l["counts"].size(), 16u);
    EXPECT_LE(l["least"], l["median"]);
    EXPECT_LE(l["median"], l["most"]);
    EXPECT_LE(l["most"], 0.25) << "of 4 that each token chooses";
  }
  EXPECT_THAT(run_program({"experts", "--tokens", "8"}).out, HasSubstr("layers.7.moe"));
}

TEST(Synth, RefusesWhatItDoesNotKnow) {
  for (const char* model : {"synth:", "synth:nowhere", "synth:qwen3.5-35b-a3b,layers=0", "synth:qwen3.5-35b-a3b,warp=9",
                            "synth:qwen3.5-35b-a3b,quant=i3"}) {
    const Ran ran = run_program({"run", "-m", model, "hi"});
    EXPECT_EQ(ran.exit, 2) << model << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(Backends, AreListed) {
  EXPECT_THAT(run_program({"backends"}).out,
              AllOf(HasSubstr("reference"), Not(HasSubstr("gated_delta")), Not(HasSubstr("files considered"))));
  EXPECT_THAT(run_program({"backends", "--details"}).out,
              AllOf(HasSubstr("reference"), HasSubstr("gated_delta"), HasSubstr("weights: any"), HasSubstr("--set ")));
  const json out = run_json({"backends", "--json"});
  for (const json& backend : out["backends"]) {
    if (backend.contains("unavailable")) continue;  // its device is not in this machine
    EXPECT_FALSE(backend["devices"][0]["kernels"]["linear"].empty());
  }
  EXPECT_TRUE(std::any_of(out["backends"].begin(), out["backends"].end(),
                          [](const json& backend) { return backend["id"] == "reference"; }));
  EXPECT_EQ(out["candidates"][0]["accepted"], true);
}

TEST(Plan, NamesAKernelForEveryOperation) {
  const Ran ran = run_program({"plan", "--explain"});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("layers.0.gated_delta"), HasSubstr("layers.7.moe"), HasSubstr("reference:0")));
  const json out = run_json({"plan", "--json", "--rows", "64"});
  EXPECT_FALSE(out.empty());
}

// 207 GiB of weights, which are neither made nor read.
TEST(Plan, TellsTheMemoryOfAModelOfAnySize) {
  const std::vector<std::string> model = {"-m", "synth:qwen3.5-397b-a17b", "--backend", "reference"};
  const auto with = [&](std::vector<std::string> args) {
    args.insert(args.end(), model.begin(), model.end());
    return args;
  };
  const Ran ran = run_program(with({"plan", "--no-load"}));
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("layers.59.moe"), HasSubstr("weights in the file: 207.84 GiB\nmemory of"),
                             HasSubstr("reference:0: copies of weights 0.00 GiB, states 0.42 GiB (1 session of 4096")));
  const json out = run_json(with({"plan", "--no-load", "--json"}));
  EXPECT_GT(out["weight_bytes"], uint64_t{200} << 30);
  const json& memory = out["memory"];
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0]["copied_weight_bytes"], 0);  // reference reads them as they lie in the file
  // 15 layers with 2 KV heads of 256 in fp32; 45 with 64 x 128 x 128 of the delta rule, and three inputs of the
  // convolution; a count of each token for penalties.
  const uint64_t cached = 15 * 4096 * 2 * 2 * 256 * 4, slot = 45ull * 4 * (64 * 128 * 128 + 3 * (2 * 16 + 64) * 128);
  EXPECT_EQ(memory[0]["state_bytes"], cached + slot + 248320 * 4);
}

TEST(Convert, ReplacesAnOlderProgram) {
  const TemporaryFolder folder;
  const std::string path = folder.path("x.swy");
  ASSERT_EQ(run_program({"convert", kTiny + "half-rotary", "-o", path}).exit, 0);
  const json out = run_json({"convert", kTiny + "multimodal", "-o", path, "--quant", "i8", "--group", "row", "--json"});
  EXPECT_EQ(out["encoding"], "i8 group row");
  EXPECT_EQ(out["output"], path);
  EXPECT_EQ(out["bytes"], std::filesystem::file_size(path));
  EXPECT_THAT(out["notes"].get<std::vector<std::string>>(), Contains("skipped 2 tensors of the vision encoder"));
  EXPECT_EQ(run_json({"inspect", path, "--verify", "--json"})["quantization"], "i8 group row");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Convert, PacksACheckpointOrAProgram) {
  const TemporaryFolder folder;
  const std::string plain = folder.path("plain.swy"), packed = folder.path("packed.swy");
  ASSERT_EQ(run_program({"convert", kTiny + "half-rotary", "-o", plain}).exit, 0);
  const json out = run_json({"convert", plain, "-o", packed, "--pack", "cpu", "--json"});
  EXPECT_EQ(out["packed"]["backend"], "cpu");
  EXPECT_GT(out["packed"]["tensors"], 5);
  EXPECT_EQ(out["bytes"], std::filesystem::file_size(packed));
  const json told = run_json({"inspect", packed, "--verify", "--tensors", "--json"});
  EXPECT_EQ(told["weights"], "verified");
  EXPECT_EQ(told["packed_weights"], "verified");
  EXPECT_TRUE(told["packed_bytes"].contains("cpu.panels16/1"));
  EXPECT_EQ(told["weight_bytes"], run_json({"inspect", plain, "--json"})["weight_bytes"]);
  const std::string both = folder.path("both.swy");
  ASSERT_EQ(run_program({"convert", kTiny + "half-rotary", "-o", both, "--pack", "cpu"}).exit, 0);
  EXPECT_EQ(read_file(both), read_file(packed));
}

TEST(Convert, SaysWhatPackingNeeds) {
  const TemporaryFolder folder;
  const std::string to = folder.path("x.swy");
  const Ran nowhere = run_program({"convert", kTiny + "half-rotary", "-o", to, "--pack", "warp"});
  EXPECT_NE(nowhere.exit, 0);
  EXPECT_THAT(nowhere.err, HasSubstr("warp"));
  EXPECT_FALSE(std::filesystem::exists(to)) << "known before the checkpoint is read";
  const Ran file = run_program({"convert", SWITCHYARD_DEMO_MODEL, "-o", to});
  EXPECT_EQ(file.exit, 2);
  EXPECT_THAT(file.err, HasSubstr("--pack BACKEND"));
}

// The row of one setting.
json setting(const json& rows, const std::string& flag) {
  for (const json& row : rows) {
    if (row["flag"] == flag) return row;
  }
  ADD_FAILURE() << "no " << flag;
  return {};
}

TEST(Config, TellsWhereEachValueCameFrom) {
  const Conditions variables{{{"SWITCHYARD_CTX", "64"}, {"SWITCHYARD_CHUNK", "32"}, {"SWITCHYARD_VERIFY", "1"}}, "", 0};
  const json rows = run_json({"config", "--json", "--ctx", "128", "--deterministic"}, variables);
  const auto expect = [&](const char* flag, const char* value, const char* source) {
    const json row = setting(rows, flag);
    EXPECT_EQ(row["value"], value) << flag;
    EXPECT_EQ(row["source"], source) << flag;
  };
  expect("--backend", "reference", "environment");
  expect("--log", "warning", "default");
  expect("--chunk", "32", "environment");
  expect("--ctx", "128", "flag");
  expect("--deterministic", "on", "flag");
  expect("--verify", "on", "environment");
  expect("--validate", "off", "default");
  EXPECT_THAT(run_program({"config"}, "", variables).out, HasSubstr("--chunk          SWITCHYARD_CHUNK           32"));
}

TEST(Config, HasEveryFlagThatACommandShows) {
  const json rows = run_json({"config", "--json"});
  const std::string help = run_program({"run", "--help"}).out;
  for (const json& row : rows) {
    if (row["flag"].get<std::string>().starts_with("--set ")) continue;
    EXPECT_THAT(help, HasSubstr(row["flag"].get<std::string>()));
    const std::string variable = row["env"];
    if (variable.empty()) continue;
    EXPECT_THAT(help, HasSubstr("(Env:" + variable + ")"));
  }
}

// With reference there is no choice, since its operations have one kernel each; a damaged file does not stop it.
TEST(Tune, WritesWhatThePlannerReads) {
  const TemporaryFolder folder;
  const std::string file = folder.path("new/tuning.json");
  const auto tune = [&](const char* backend) {
    return run_json({"tune", "--json", "--backend", backend, "--rows", "1,2,...,4", "--depths", "7", "--seconds",
                     "0.001", "--tuning", file});
  };
  EXPECT_EQ(tune("reference")["measured"], 0);
  EXPECT_FALSE(std::filesystem::exists(file));
#if defined(__x86_64__)
  EXPECT_GT(tune("cpu")["measured"].get<int>(), 0);
  const Arguments plan = {"plan", "--explain", "--backend", "cpu", "--tuning", file};
  const Ran explained = run_program(plan);
  EXPECT_THAT(explained.out, HasSubstr("; tuned 20"));
  EXPECT_EQ(run_program(plan).out, explained.out) << "the same file, the same plan";
#endif
  const std::string broken = folder.write("broken.json", "{}");
  const Ran ran = run_program({"plan", "--tuning", broken});
  EXPECT_EQ(ran.exit, 0);
  EXPECT_THAT(ran.err, HasSubstr("broken.json is ignored"));
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  EXPECT_EQ(run_program({"plan", "--tuning", broken, "--no-tuned"}).err, "");
  EXPECT_THAT(run_program({"tune", "--rows", "1,...,4"}).err, HasSubstr("dots follow two growing numbers"));
}

TEST(Trace, IsWrittenByARun) {
  const TemporaryFolder folder;
  const std::string file = folder.path("trace.json");
  const Ran ran = run_program({"run", "-n", "3", "--temp", "0", "--trace", file, "Once"});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  const json trace = json::parse(read_file(file));
  EXPECT_GT(trace["traceEvents"].size(), 100u);
  const Ran nowhere = run_program({"run", "-n", "3", "--trace", folder.path("no/trace.json"), "Once"});
  EXPECT_EQ(nowhere.exit, 1);
  EXPECT_EQ(nowhere.out, "") << "said before anything is drawn";
}

TEST(Settings, AModelNamedOnTheLineWinsOverTheVariable) {
  const Conditions wrong{{{"SWITCHYARD_MODEL", "/nowhere.swy"}}, "", 0};
  for (const char* command : {"plan", "inspect"}) {
    EXPECT_EQ(run_program({command, SWITCHYARD_DEMO_MODEL}, "", wrong).exit, 0) << command;
    const Ran ran = run_program({command}, "", wrong);
    EXPECT_EQ(ran.exit, 1) << command;
    EXPECT_THAT(ran.err, HasSubstr("/nowhere.swy"));
  }
  EXPECT_EQ(run_program({"run", "-n", "1", "-m", SWITCHYARD_DEMO_MODEL, "hi"}, "", wrong).exit, 0);
}

TEST(Settings, ValidationFindsNothingToSay) {
  const Ran ran = run_program({"run", "--validate", "--temp", "0", "-n", "3", "Once"});
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 2) << ran.err;  // the summary
}

}  // namespace
}  // namespace switchyard::testing
