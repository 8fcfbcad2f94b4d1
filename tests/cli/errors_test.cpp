// SPDX-License-Identifier: Apache-2.0
// Bad input to every command: one line on standard error that names the value and says what to do, nothing on standard
// output, exit code 1 or 2, and no file made or changed.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string plugin(const std::string& name) { return std::string(SWITCHYARD_FIXTURES) + "/switchyard_" + name + ".so"; }

// "{name}" in an argument stands for that file in the folder below.
struct Case {
  const char* name;
  Arguments arguments;
  int exit;
  std::vector<std::string> message;  // parts of it
  std::string input = "";
  std::map<std::string, std::string> environment = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Files that are missing, damaged or foreign.
class Files {
 public:
  static const Files& get() {
    static const Files files;
    return files;
  }
  std::string expand(std::string text) const {
    for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
      const size_t end = text.find('}', at);
      if (end != std::string::npos) text.replace(at, end - at + 1, folder_.path(text.substr(at + 1, end - at - 1)));
    }
    return text;
  }
  std::map<std::string, std::filesystem::file_time_type> listing() const {
    std::map<std::string, std::filesystem::file_time_type> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      all[entry.path()] = entry.last_write_time();
    }
    return all;
  }

 private:
  Files() {
    const std::string demo = read_file(SWITCHYARD_DEMO_MODEL);
    folder_.write("truncated.swy", demo.substr(0, 100000));
    folder_.write("head.swy", demo.substr(0, 40));
    folder_.write("empty.swy", "");
    folder_.write("text.swy", "Once upon a time there was a file that was no program at all, and it was long enough.");
    std::string flipped = demo;
    flipped[2000] = static_cast<char>(flipped[2000] ^ 4);
    folder_.write("flipped-header.swy", flipped);
    flipped = demo;
    flipped[demo.size() - 70000] = static_cast<char>(flipped[demo.size() - 70000] ^ 1);
    folder_.write("flipped-weights.swy", flipped);
    folder_.write("invalid.txt",
                  "ab\xff"
                  "cd");
    folder_.write("short.txt", "A few words.");
    folder_.write("empty.txt", "");
    folder_.write("x.gguf", "GGUF");

    std::string other = read_file(plugin("good"));
    const uint16_t machine = EM_S390;
    std::memcpy(other.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
    folder_.write("other-machine.so", other);
    folder_.write("text.so", "hello");

    const std::string tiny = SWITCHYARD_TEST_DATA "/tiny/half-rotary";
    std::filesystem::create_directory(folder_.path("checkpoint"));
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(tiny + "/" + file, folder_.path(std::string("checkpoint/") + file));
    }
    EXPECT_EQ(run_program({"convert", folder_.path("checkpoint"), "-o", folder_.path("wordless.swy")}).exit, 0);
  }
  TemporaryFolder folder_;
};

std::string many_ids(int n) {
  std::string ids;
  for (int i = 0; i < n; ++i) ids += "1 ";
  return ids;
}

std::vector<Case> usage() {
  return {
      {"NoCommand", {}, 2, {"name a command: run, chat, pull, list, rm, convert"}},
      {"UnknownCommand",
       {"talk"},
       2,
       {"there is no command 'talk'; the commands are run, chat, pull, list, rm, convert"}},
      {"UnknownFlag", {"run", "--warp", "9"}, 2, {"switchyard: run has no option --warp; see switchyard run --help"}},
      {"NoValue", {"run", "hi", "--temp"}, 2, {"--temp needs a value"}},
      {"ZeroTokens", {"run", "-n", "0", "hi"}, 2, {"--tokens takes a whole number from 1 to 16777216, not '0'"}},
      {"NegativeTokens", {"run", "-n", "-1", "hi"}, 2, {"--tokens", "-1"}},
      {"TokensAreText", {"run", "-n", "many", "hi"}, 2, {"--tokens takes a whole number", "not 'many'"}},
      {"Temperature", {"run", "--temp", "-1", "hi"}, 2, {"--temp: -1 must be 0 (greedy) or more"}},
      {"TemperatureIsNotANumber", {"run", "--temp", "nan", "hi"}, 2, {"--temp: nan must be"}},
      {"TemperatureIsText", {"run", "--temp", "hot", "hi"}, 2, {"--temp takes a number, not 'hot'"}},
      {"TopP", {"run", "--top-p", "0", "hi"}, 2, {"--top-p: 0 must be above 0 and at most 1"}},
      {"TopPAboveOne", {"run", "--top-p", "1.5", "hi"}, 2, {"--top-p: 1.5 must be"}},
      {"TopK", {"run", "--top-k", "-3", "hi"}, 2, {"--top-k: -3 must be 0 (off) or more"}},
      {"PatternOfNoText",
       {"run", "--allow-regex", "(?=x)y", "hi"},
       2,
       {"--allow-regex '(?=x)y': no text can satisfy it"}},
      {"TwoConstraints",
       {"run", "--allow-regex", "x", "--grammar", "/dev/null", "hi"},
       2,
       {"--grammar", "/dev/null is empty"}},
      {"NoSchemaFile", {"run", "--json-schema", "/nowhere.json", "hi"}, 2, {"--json-schema", "/nowhere.json"}},
      {"TopKOverflows", {"run", "--top-k", "99999999999", "hi"}, 2, {"--top-k", "99999999999"}},
      {"MinP", {"run", "--min-p", "2", "hi"}, 2, {"--min-p: 2 must be from 0 to 1"}},
      {"RepeatPenalty", {"run", "--repeat-penalty", "0", "hi"}, 2, {"--repeat-penalty: 0 must be above 0"}},
      {"PresencePenalty",
       {"run", "--presence-penalty", "inf", "hi"},
       2,
       {"--presence-penalty: inf must be from -2 to 2"}},
      {"NegativeSeed", {"run", "--seed", "-1", "hi"}, 2, {"--seed", "-1 is not a whole number from 0 to 18446744"}},
      {"HugeSeed", {"run", "--seed", "18446744073709551616", "hi"}, 2, {"--seed", "is not a whole number"}},
      {"ChatSampling", {"chat", "--top-p", "2"}, 2, {"--top-p: 2 must be"}},
      {"MeantTemp",
       {"run", "--temperature", "1", "hi"},
       2,
       {"switchyard: run has no option --temperature; did you mean --temp?"}},
      {"MeantTempToo", {"run", "--tmp=1", "hi"}, 2, {"switchyard: run has no option --tmp; did you mean --temp?"}},
      {"MeantTokens", {"run", "--max_tokens", "9", "hi"}, 2, {"has no option --max_tokens; did you mean --tokens?"}},
      {"MeantTopP", {"chat", "--top_p", "1"}, 2, {"switchyard: chat has no option --top_p; did you mean --top-p?"}},
      {"MeantThreshold",
       {"bench", "compare", "--treshold", "3"},
       2,
       {"switchyard: bench compare has no option --treshold; did you mean --threshold?"}},
      {"MeantThePrompt", {"run", "--prompt", "hi"}, 2, {"has no option --prompt; give the prompt without it"}},
      {"MeantNothingKnown", {"run", "-z", "hi"}, 2, {"switchyard: run has no option -z; see switchyard run --help"}},
      {"FlagWithAValue", {"run", "--json=maybe", "hi"}, 2, {"--json takes no value"}},
      {"MeantRun", {"rnu", "hi"}, 2, {"there is no command 'rnu'; did you mean run?"}},
      {"PromptWithoutQuotes",
       {"run", "Once", "upon"},
       2,
       {"takes no argument 'upon'; put a text of several words in quotes"}},
      {"SystemIsNotUtf8", {"chat", "--system", "\xff"}, 2, {"--system: the text is not valid UTF-8 at byte 0"}},
      {"TooManyThreads",
       {"run", "--threads", "20000", "hi"},
       2,
       {"--threads", "'20000' is not a whole number from 1 to "}},
      {"NegativeThreads", {"run", "--threads", "-1", "hi"}, 2, {"--threads", "'-1' is not a whole number from 1 to "}},
      {"AnInstructionSetThatThereIsNot",
       {"run", "--set", "cpu.isa=neon", "--backend", "cpu", "hi"},
       2,
       {"isa is one of auto, baseline, avx2, avx512 and amx, not 'neon'"}},
      {"LogLevel", {"run", "--log", "loud", "hi"}, 2, {"--log", "loud"}},
      {"Variable", {"run", "hi"}, 2, {"--ctx", "abc"}, "", {{"SWITCHYARD_CTX", "abc"}}},
      {"PromptAndFile", {"run", "hi", "-f", "{short.txt}"}, 2, {"give a prompt or --file, not both"}},
      {"NoPrompt", {"run"}, 2, {"the prompt is empty"}},
      {"EmptyPromptFile", {"run", "-f", "{empty.txt}"}, 2, {"the prompt"}},
      {"PromptTooLong",
       {"run", "--ctx", "8", "Once upon a time there was a king who had three daughters"},
       2,
       {"the prompt has 15 tokens, and 8 of the context's 8 are free; raise --ctx, which may be up to 4096, or shorten "
        "the prompt"}},
      {"PromptTooLongForTheModel",
       {"logits", "--ctx", "512", "-m", "{wordless.swy}", "--ids", many_ids(513), "--out", "{x.npy}"},
       2,
       {"--ids has 513 tokens, and the context holds 512",
        "shorten the prompt: this model was made for 512 tokens at most"}},
      {"FileIsAFolder", {"run", "-f", "{checkpoint}"}, 2, {"checkpoint is a folder; name a text file"}},
      {"ModelIsACheckpoint",
       {"run", "-m", "{checkpoint}", "hi"},
       2,
       {"checkpoint is a Hugging Face checkpoint; make a program file of it: switchyard convert ", " -o NAME.swy"}},
      {"ModelIsAFileOfACheckpoint",
       {"inspect", "{checkpoint/model.safetensors}"},
       2,
       {"is a Hugging Face checkpoint; make a program file of it: switchyard convert ", "checkpoint -o NAME.swy"}},
      {"InvalidUtf8", {"run"}, 2, {"the text is not valid UTF-8 at byte 2; convert it to UTF-8 first"}, "ab\xff"},
      {"InvalidUtf8InAFile", {"run", "-f", "{invalid.txt}"}, 2, {"not valid UTF-8 at byte 2"}},
      {"InvalidUtf8InAnArgument", {"run", "ab\xff"}, 2, {"not valid UTF-8 at byte 2"}},
      {"ConvertWithoutOutput", {"convert", "{checkpoint}"}, 2, {"--output is required"}},
      {"ConvertQuant",
       {"convert", "{checkpoint}", "-o", "{x.swy}", "--quant", "i3"},
       2,
       {"--quant i3 is unknown; choose bf16, i8, i4 or i4a"}},
      {"ConvertGroup",
       {"convert", "{checkpoint}", "-o", "{x.swy}", "--group", "31"},
       2,
       {"--group 31 is unknown; choose 16, 32, 64, 128 or row"}},
      {"ConvertToNothing", {"convert", "{checkpoint}", "-o", ""}, 2, {"the file to write is empty"}},
      {"ConvertOverAFolder", {"convert", "{checkpoint}", "-o", "{checkpoint}"}, 1, {"checkpoint", "name a file"}},
      {"ConvertOverItsSource",
       {"convert", "{checkpoint}", "-o", "{checkpoint/model.safetensors}"},
       2,
       {"exists and is not a program file; remove it or write elsewhere"}},
      {"InspectTwo", {"inspect", "a", "b"}, 2, {"b"}},
      {"LogitsWithoutIds", {"logits", "--out", "{x.npy}"}, 2, {"--ids is required"}},
      {"LogitsOfNoIds", {"logits", "--ids", " ", "--out", "{x.npy}"}, 2, {"--ids is empty"}},
      {"LogitsOfWords",
       {"logits", "--ids", "1 two", "--out", "{x.npy}"},
       2,
       {"--ids takes whole numbers separated by blanks, not '1 two'"}},
      {"LogitsOutsideTheVocabulary",
       {"logits", "--ids", "1 4096", "--out", "{x.npy}"},
       2,
       {"token id 4096 is outside the vocabulary; ids go from 0 to 4095"}},
      {"LogitsOfANegativeId", {"logits", "--ids", "-5", "--out", "{x.npy}"}, 2, {"token id -5"}},
      {"LogitsTooLong",
       {"logits", "--ctx", "2", "--ids", "1 2 3", "--out", "{x.npy}"},
       2,
       {"--ids has 3 tokens, and the context holds 2; raise --ctx"}},
      {"LogitsToAFolder", {"logits", "--ids", "1", "--out", "{checkpoint}"}, 2, {"is a folder; name a file"}},
      {"WindowOfOne", {"perplexity", "--ctx", "1", "-f", "{short.txt}"}, 2, {"--ctx is 1; a window takes from 2 to"}},
      {"TextShorterThanAWindow",
       {"perplexity", "-f", "{short.txt}"},
       2,
       {"and a window takes 512; give a longer text or a smaller --ctx"}},
      {"PerplexityOfInvalidUtf8", {"perplexity", "-f", "{invalid.txt}"}, 2, {"not valid UTF-8 at byte 2"}},
      {"PlanTooWide", {"plan", "--rows", "3000"}, 2, {"--rows may be at most 2048"}},
      {"UnknownVariantOperation", {"plan", "--variant", "bogus=x"}, 2, {"unknown operation 'bogus'"}},
      {"UnknownVariantKernel",
       {"plan", "--variant", "linear=nosuch"},
       2,
       {"--variant linear=nosuch: no chosen backend has such a kernel; for linear there is linear.plain"}},
      {"MissingTuning",
       {"run", "--tuning", "{missing.json}", "hi"},
       2,
       {"missing.json: there is no such file; switchyard tune --tuning"}},
      {"ExactWithoutCpu",
       {"run", "--backend", "reference", "--exact", "hi"},
       2,
       {"--exact is an option of the cpu backend, which --backend reference does not name"}},
      {"WrongSetOfAuto",
       {"run", "--backend", "auto", "--set", "cpu.isa=foo", "hi"},
       2,
       {"--set cpu.isa=foo: cpu:0: isa is one of auto, baseline, avx2, avx512 and amx, not 'foo'"}},
      {"WrongSetOfOne",
       {"run", "--backend", "cpu", "--set", "cpu.exact=1", "--set", "cpu.isa=foo", "hi"},
       2,
       {"--set cpu.isa=foo: cpu:0: isa is one of"}},
      {"BrokenSet", {"run", "--set", "exact", "hi"}, 2, {"--set takes ID.NAME=VALUE, not 'exact'"}},
      {"SetOfAnUnknownBackend",
       {"run", "--set", "nosuch.exact=1", "hi"},
       2,
       {"--set nosuch.exact: there is no backend 'nosuch'; found: "}},
      {"SetOfAnUnknownOption",
       {"config", "--set", "reference.nosuch=1"},
       2,
       {"backend reference has no option 'nosuch'"}},
  };
}

std::vector<Case> failures() {
  const std::string other_abi = plugin("other_abi");
  return {
      {"NoModel", {"run", "-m", "/nowhere.swy", "hi"}, 1, {"cannot open /nowhere.swy: No such file or directory"}},
      {"ModelIsGguf", {"run", "-m", "{x.gguf}", "hi"}, 1, {"x.gguf: the header at byte 4 is cut off"}},
      {"ConvertGguf", {"convert", "{x.gguf}", "-o", "{x.swy}"}, 1, {"x.gguf: the header at byte 4 is cut off"}},
      {"TruncatedModel",
       {"run", "-m", "{truncated.swy}", "hi"},
       1,
       {"truncated.swy", "the file has 100000 bytes but its header says", "it is truncated; copy it again"}},
      {"ModelOfAFewBytes", {"inspect", "{head.swy}"}, 1, {"head.swy", "truncated: 40 bytes"}},
      {"EmptyModel", {"inspect", "{empty.swy}"}, 1, {"empty.swy", "the file is empty"}},
      {"FlippedHeader", {"run", "-m", "{flipped-header.swy}", "hi"}, 1, {"is damaged", "copy the file again"}},
      {"FlippedWeights",
       {"inspect", "{flipped-weights.swy}", "--verify"},
       1,
       {"the weights of '", "are damaged", "copy the file again"}},
      {"FlippedWeightsAtLoad", {"run", "--verify", "-m", "{flipped-weights.swy}", "hi"}, 1, {"are damaged"}},
      {"ForeignModel",
       {"run", "-m", "{text.swy}", "hi"},
       1,
       {"text.swy", "this is not a switchyard program", "make one with `switchyard convert`"}},
      {"ForeignModelInPlan", {"plan", "{text.swy}"}, 1, {"this is not a switchyard program"}},
      {"CacheAndNone",  // before the model is read, as the next one
       {"serve", "-m", "{text.swy}", "--no-cache", "--cache-dir", "{states}"},
       2,
       {"--no-cache leaves nothing to keep in --cache-dir; give one of them"}},
      {"CacheInAFile",
       {"serve", "-m", "{text.swy}", "--cache-dir", "{text.swy}"},
       1,
       {"--cache-dir '", "text.swy' is no folder, and cannot be made one"}},
      {"ForeignModelInChat", {"chat", "-m", "{text.swy}"}, 1, {"this is not a switchyard program"}},
      {"ForeignModelInPerplexity", {"perplexity", "{text.swy}", "-f", "{short.txt}"}, 1, {"not a switchyard program"}},
      {"ForeignModelToCompare",
       {"perplexity", "--ctx", "2", "-f", "{short.txt}", "--against", "{text.swy}"},
       1,
       {"this is not a switchyard program"}},
      {"ForeignModelInLogits", {"logits", "{text.swy}", "--ids", "1", "--out", "{x.npy}"}, 1, {"not a switchyard"}},
      {"ModelFromTheEnvironment", {"run", "hi"}, 1, {"cannot open /env.swy"}, "", {{"SWITCHYARD_MODEL", "/env.swy"}}},
      {"NoPromptFile", {"run", "-f", "{absent.txt}"}, 1, {"cannot open ", "absent.txt: No such file or directory"}},
      {"NoText", {"perplexity", "-f", "{absent.txt}"}, 1, {"cannot open ", "absent.txt"}},
      {"WordsForAModelWithoutTokenizer",
       {"run", "-m", "{wordless.swy}", "hi"},
       1,
       {"this model has no tokenizer; give token ids to switchyard logits instead"}},
      {"ChatWithoutTokenizer", {"chat", "-m", "{wordless.swy}"}, 1, {"this model has no tokenizer"}},
      {"UnknownBackend", {"run", "--backend", "nosuch", "hi"}, 1, {"there is no backend 'nosuch'; found: "}},
      {"UnknownBackendInAList", {"plan", "--backend", "reference,nosuch"}, 1, {"there is no backend 'nosuch'"}},
      {"NoSuchDevice", {"run", "--backend", "reference:7", "hi"}, 1, {"there is no reference:7"}},
      {"BrokenDevice", {"run", "--backend", "reference:x", "hi"}, 2, {"'reference:x' names no device"}},
      {"BackendTwice", {"run", "--backend", "reference,reference", "hi"}, 2, {"--backend names reference:0 twice"}},
      {"BackendThatCannotServe",
       {"run", "--backend-lib", plugin("good"), "--backend", "good", "hi"},
       1,
       {"no chosen backend can run layers.0.gated_delta (gated_delta)", "good:0: no kernel for gated_delta"}},
      {"BackendOfAnotherAbi",
       {"run", "--backend-lib", other_abi, "--backend", "good", "hi"},
       1,
       {"speaks ABI 2 to 2, this runtime speaks 1; install the plugin's matching version"}},
      {"NoSuchLibrary",
       {"run", "--backend-lib", "/gone.so", "hi"},
       1,
       {"--backend-lib /gone.so: cannot open /gone.so"}},
      {"LibraryByARelativePath",
       {"run", "--backend-lib", "gone.so", "hi"},
       1,
       {"gone.so: --backend-lib takes an absol"}},
      {"LibraryIsNoPlugin", {"plan", "--backend-lib", "{text.so}"}, 1, {"text.so: not a shared library"}},
      {"LibraryForAnotherProcessor",
       {"run", "--backend-lib", "{other-machine.so}", "hi"},
       1,
       {"other-machine.so: built for another processor (ELF machine 22, this one is"}},
      {"LibraryOfAnotherAbi", {"run", "--backend-lib", other_abi, "hi"}, 1, {"other_abi.so: speaks ABI 2 to 2"}},
      {"BackendWithoutDevice",
       {"run", "--backend-lib", plugin("no_device"), "--backend", "good", "hi"},
       1,
       {"backend good has 0 devices"}},
      {"NoCheckpoint",
       {"convert", "/nowhere", "-o", "{x.swy}"},
       1,
       {"/nowhere has no config.json; name the folder of a Hugging Face checkpoint"}},
      {"CheckpointIsAFile", {"convert", "{short.txt}", "-o", "{x.swy}"}, 2, {"short.txt is a file", "--pack BACKEND"}},
      {"PackWhatIsNoProgram",
       {"convert", "{short.txt}", "-o", "{x.swy}", "--pack", "cpu"},
       1,
       {"short.txt: this is not a switchyard program"}},
      {"ConvertIntoNowhere",
       {"convert", "{checkpoint}", "-o", "{absent/x.swy}"},
       1,
       {"cannot create ", "absent/x.swy: No such file or directory"}},
      {"LogitsIntoNowhere", {"logits", "--ids", "1", "--out", "{absent/x.npy}"}, 1, {"cannot create "}},
      {"DequantizeIntoNowhere", {"inspect", "--dequantize", "{absent/x.st}"}, 1, {"cannot create "}},
      {"ControlCharacters",
       {"run", "-m", "/no\nwhere\x1b[31m.swy", "hi"},
       1,
       {"cannot open /no\\x0Awhere\\x1B[31m.swy"}},
  };
}

class Refuses : public ::testing::TestWithParam<Case> {};

TEST_P(Refuses, InOneLine) {
  const Case& c = GetParam();
  const Files& files = Files::get();
  Arguments arguments;
  for (const std::string& a : c.arguments) arguments.push_back(files.expand(a));
  const auto before = files.listing();
  const Ran ran = run_program(arguments, c.input, {c.environment, "", 0});
  EXPECT_EQ(ran.exit, c.exit) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, StartsWith("switchyard: "));
  EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << ran.err;
  for (const std::string& part : c.message) EXPECT_THAT(ran.err, HasSubstr(part));
  EXPECT_EQ(files.listing(), before);
}

std::string test_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Usage, Refuses, ::testing::ValuesIn(usage()), test_name);
INSTANTIATE_TEST_SUITE_P(Failure, Refuses, ::testing::ValuesIn(failures()), test_name);

// A file that is not a backend does not stop a run: it is skipped, and `backends --explain` says why.
TEST(Backends, SaysWhyAFileIsNone) {
  const Files& files = Files::get();
  Arguments arguments = {"backends", "--explain"};
  for (const std::string& file : {files.expand("{text.so}"), files.expand("{other-machine.so}"), plugin("other_abi"),
                                  plugin("no_note"), files.expand("{gone.so}")}) {
    arguments.insert(arguments.end(), {"--backend-lib", file});
  }
  const Ran ran = run_program(arguments);
  EXPECT_EQ(ran.exit, 0) << ran.err;
  for (const char* reason :
       {"text.so: not a shared library (no ELF header)",
        "other-machine.so: built for another processor (ELF machine 22",
        "other_abi.so: speaks ABI 2 to 2, this runtime speaks 1", "no_note.so: not a Switchyard plugin",
        "gone.so: cannot open ", "switchyard_reference.so: accepted as reference"}) {
    EXPECT_THAT(ran.out, HasSubstr(reason));
  }
}

TEST(Output, ThatCannotBeWrittenIsAFailure) {
  for (const Arguments& arguments :
       std::vector<Arguments>{{"run", "-n", "2", "hi"}, {"backends"}, {"config"}, {"inspect", "--json"}}) {
    const Ran ran = run_program(arguments, "", {{}, "/dev/full", 0});
    EXPECT_EQ(ran.exit, 1) << arguments[0];
    EXPECT_THAT(ran.err, HasSubstr("switchyard: cannot write to standard output")) << arguments[0];
  }
}

TEST(Output, LargerThanTheLimitOnFilesLeavesNothing) {
  const TemporaryFolder out;
  const std::string checkpoint = Files::get().expand("{checkpoint}");
  for (const Arguments& arguments :
       std::vector<Arguments>{{"convert", checkpoint, "-o", out.path("x.swy"), "--quant", "bf16"},
                              {"logits", "--ids", "1 2 3 4 5 6 7 8", "--out", out.path("x.npy")},
                              {"inspect", "--dequantize", out.path("x.st")}}) {
    const Ran ran = run_program(arguments, "", {{}, "", 100000});
    EXPECT_EQ(ran.exit, 1) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("File too large"));
    EXPECT_TRUE(std::filesystem::is_empty(out.path())) << arguments[0];
  }
}

}  // namespace
}  // namespace switchyard::testing
