// SPDX-License-Identifier: Apache-2.0
// The appearance of a report in each format. Set SWITCHYARD_RECORD_GOLDEN to write the expected files again.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/report_grids.h"
#include "bench/text.h"
#include "tests/bench/sample_report.h"
#include "tests/support/files.h"

namespace switchyard::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = SWITCHYARD_TEST_DATA "/bench/" + name;
  if (std::getenv("SWITCHYARD_RECORD_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(text, testing::read_file(path));
}

TEST(Render, Table) { expect_golden("sample.txt", render(sample_report(), ReportFormat::table)); }
TEST(Render, Csv) { expect_golden("sample.csv", render(sample_report(), ReportFormat::csv)); }
TEST(Render, Markdown) { expect_golden("sample.md", render(sample_report(), ReportFormat::md)); }
TEST(Render, JsonIsTheReport) {
  const auto read = parse_report(render(sample_report(), ReportFormat::json));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(to_json(*read), to_json(sample_report()));
}

TEST(Render, UnknownFormatsNameTheKnownOnes) {
  EXPECT_TRUE(parse_report_format("html").ok());
  EXPECT_EQ(parse_report_format("pdf").status().message(),
            "there is no format 'pdf'; known: table, json, csv, md, html");
}

TEST(Render, TablesKeepToTheirWidth) {
  for (const uint32_t width : {100u, 120u, 140u, 160u}) {
    const std::string text = render_table(sample_report(), {false, width});
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      EXPECT_LE(characters(text.substr(at, end - at)), width) << text.substr(at, end - at);
      at = end + 1;
    }
  }
}

TEST(Render, ColourOnlyWhereAsked) {
  EXPECT_THAT(render_table(sample_report(), {false, 140}), Not(HasSubstr("\033")));
  EXPECT_THAT(render_table(sample_report(), {true, 140}),
              AllOf(HasSubstr("\033[32m8.01x faster"), HasSubstr("\033[31mout of memory")));
}

TEST(Render, EveryCsvLineHasAsManyFields) {
  const std::string text = render_csv(sample_report());
  size_t expected = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    size_t fields = 1;
    bool quoted = false;
    for (; at < end; ++at) {
      if (text[at] == '"') quoted = !quoted;
      fields += text[at] == ',' && !quoted;
    }
    if (expected == 0) expected = fields;
    EXPECT_EQ(fields, expected);
    at = end + 1;
  }
}

// Texts from outside, in every place that has one.
Report hostile_report() {
  const std::string bad = "<b onload='x'>|`\"=1+1,\n\033[31m\xff</script>&amp;](javascript:x)";
  Report r = sample_report();
  r.version = r.commit = r.date = r.prompt = r.machine.processor = r.machine.kernel = bad;
  r.command = {bad};
  r.model.name = r.model.quantization = bad;
  r.ceilings[0].device = r.ceilings[0].matrix = bad;
  for (Configuration& c : r.configurations) {
    for (Comparison& x : r.comparisons) {
      if (x.base == c.name) x.base += bad;
      if (x.other == c.name) x.other += bad;
    }
    c.name += bad;
    c.backend = c.library = c.plugin_version = c.sampling = c.quantization = c.replay = c.reason = bad;
    c.devices = {bad};
    for (Cell& cell : c.cells) {
      cell.reason = cell.bound = cell.drawn = bad;
      for (CellKernel& k : cell.kernels) k.kernel = k.op = bad;
    }
    if (!c.correctness) continue;
    c.correctness->against = c.correctness->reason = bad;
    for (OpError& e : c.correctness->ops) e.op = e.kernel = bad;
  }
  return r;
}

TEST(Render, TextFromOutsideIsEscaped) {
  const Report r = hostile_report();
  const std::string md = render_md(r);
  EXPECT_THAT(md, AllOf(Not(HasSubstr("<b")), Not(HasSubstr(";](")), Not(HasSubstr(">|")), Not(HasSubstr("\033"))));
  const std::string html = render_html(r);
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<b ")), Not(HasSubstr("</script")), Not(HasSubstr("onload='")),
                          Not(HasSubstr("\033")), Not(HasSubstr("\xff"))));
  EXPECT_THAT(html, HasSubstr("&lt;b onload=&#39;x&#39;&gt;"));
  EXPECT_THAT(render_table(r, {}), AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\xff"))));
  EXPECT_EQ(csv_text("=1+1,\"x\"\ny"), "\"'=1+1,\"\"x\"\" y\"");
  EXPECT_EQ(csv_text("-"), "'-");
  EXPECT_EQ(csv_text("plain"), "plain");
}

// The first fault of what should be XML, "" without one: tags that do not close, attributes without quotes, bare & or
// <.
std::string xml_fault(std::string_view xml) {
  std::vector<std::string> open;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const size_t end = xml.find(';', at);
      if (end == std::string_view::npos || end - at > 7) return "a bare &";
      at = end + 1;
    } else if (xml[at] == '<') {
      size_t end = at + 1;
      bool quoted = false;
      for (; end < xml.size() && (quoted || xml[end] != '>'); ++end) {
        if (xml[end] == '"') quoted = !quoted;
        if (xml[end] == '<') return "a bare <";
      }
      if (end == xml.size()) return "a tag without its end";
      const std::string_view tag = xml.substr(at + 1, end - at - 1);
      const std::string name(tag.substr(0, tag.find_first_of(" /\n", 1)));
      if (tag[0] == '/') {
        if (open.empty() || "/" + open.back() != name) return "</" + name + "> closes what is not open";
        open.pop_back();
      } else if (tag.back() != '/') {
        open.push_back(name);
      }
      at = end + 1;
    } else {
      ++at;
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

std::vector<std::string> charts_of(const std::string& html) {
  std::vector<std::string> all;
  for (size_t at = 0; (at = html.find("<svg ", at)) != std::string::npos;) {
    const size_t end = html.find("</svg>", at) + 6;
    all.push_back(html.substr(at, end - at));
    at = end;
  }
  return all;
}

Report demo_report() {
  auto report = parse_report(testing::read_file(SWITCHYARD_TEST_DATA "/bench/demo.json"));
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *report : Report{};
}

TEST(Xml, FaultsAreFound) {
  EXPECT_EQ(xml_fault("<a b=\"1 > 0\"><c/>x &amp; y</a>"), "");
  EXPECT_NE(xml_fault("<a><b></a></b>"), "");
  EXPECT_NE(xml_fault("<a>x & y</a>"), "");
  EXPECT_NE(xml_fault("<a>"), "");
}

TEST(Html, ChartsAreWellFormedAndDescribed) {
  for (const Report& report : {demo_report(), sample_report(), hostile_report()}) {
    const std::vector<std::string> charts = charts_of(render_html(report));
    EXPECT_EQ(charts.size(), 7u);
    for (const std::string& chart : charts) {
      EXPECT_EQ(xml_fault(chart), "") << chart;
      EXPECT_THAT(chart, AllOf(HasSubstr("role=\"img\""), HasSubstr("<title id="), HasSubstr("<desc id=")));
      EXPECT_THAT(chart, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf\""))));
    }
  }
}

TEST(Html, ThePageNeedsNothingElse) {
  const Report demo = demo_report();
  const std::string html = render_html(demo);
  for (const char* what : {"<script", "<link", "<img", "<iframe", "@import", "url(", "src=", "href="}) {
    EXPECT_THAT(html, Not(HasSubstr(what)));
  }
  for (size_t at = 0; (at = html.find("http", at)) != std::string::npos; ++at) {
    EXPECT_EQ(html.substr(at, 27), "http://www.w3.org/2000/svg\"") << "the name of a format, not an address";
  }
  EXPECT_THAT(html, AllOf(HasSubstr("prefers-color-scheme: dark"), HasSubstr("@media print"),
                          HasSubstr(demo.commit.substr(0, 12)), HasSubstr("x faster ("),
                          HasSubstr("crashed in prefill at 32: Segmentation fault")));
  EXPECT_EQ(xml_fault(html.substr(html.find("<main>"), html.find("</main>") + 7 - html.find("<main>"))), "");
}

// Bars and marks stay within their drawing, whatever the numbers are.
TEST(Html, StrangeNumbersAreDrawnOrLeftOut) {
  const double strange[] = {0, -1, 1e-300, 1e300, std::nan(""), HUGE_VAL};
  for (const double v : strange) {
    Report r = sample_report();
    for (Configuration& c : r.configurations) {
      for (Cell& cell : c.cells) {
        cell.rate = Interval{v, v, v};
        cell.bandwidth_share = cell.matrix_share = v;
        if (cell.ttft) cell.ttft = cell.itl = Percentiles{v, v, v};
        for (CellKernel& k : cell.kernels) k.ms = v;
      }
    }
    for (Comparison& c : r.comparisons) c.ratio = c.low = c.high = v;
    r.probes.read_gbs = v;
    const std::string html = render_html(r);
    for (const std::string& chart : charts_of(html)) {
      EXPECT_EQ(xml_fault(chart), "");
      EXPECT_THAT(chart, AllOf(Not(HasSubstr("=\"nan")), Not(HasSubstr("=\"inf")), Not(HasSubstr("=\"-nan"))));
      EXPECT_LT(chart.size(), 40'000u);
    }
    EXPECT_FALSE(render_table(r, {}).empty());
    EXPECT_FALSE(render_csv(r).empty());
  }
  EXPECT_TRUE(charts_of(render_html(Report{})).empty());
}

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(rate_text(14305.6), "14,306");
  EXPECT_EQ(rate_text(1234567), "1,234,567");
  EXPECT_EQ(rate_text(98.31), "98.3");
  EXPECT_EQ(rate_text(999.96), "1,000");
  EXPECT_EQ(rate_text(0.05), "0.0500");
  EXPECT_EQ(rate_text(0), "0");
  EXPECT_EQ(rate_text(-12345), "-12,345");
  EXPECT_EQ(rate_text(std::nan("")), "-");
  EXPECT_EQ(rate_text(1e300), "1.00e+300");
  EXPECT_EQ(seconds_text(0.000252), "252 us");
  EXPECT_EQ(seconds_text(0.9999), "1.00 s");
  EXPECT_EQ(bytes_text(39.5e6), "39.5 MB");
  EXPECT_EQ(short_text(20000), "20k");
  EXPECT_EQ(cut("größer", 4), "grö…");
  EXPECT_EQ(cut("kurz", 4), "kurz");
}

TEST(Text, VerdictsInPlainWords) {
  EXPECT_EQ(verdict_words(Verdict::faster, 34.2, 32.9, 38.6), "34.2x faster (32.9–38.6)");
  EXPECT_EQ(verdict_words(Verdict::slower, 0.5, 0.4, 0.8), "2.00x slower (1.25–2.50)");
  EXPECT_EQ(verdict_words(Verdict::slower, 0.95, 0.94, 0.97), "5.0% slower (3.0 to 6.0%)");
  EXPECT_EQ(verdict_words(Verdict::faster, 1.031, 1.02, 1.044), "3.1% faster (2.0 to 4.4%)");
  EXPECT_EQ(verdict_words(Verdict::no_difference, 1.001, 0.992, 1.012), "no difference (-0.8 to +1.2%)");
  EXPECT_EQ(verdict_words(Verdict::faster, 0, 0, 0), "faster");
}

}  // namespace
}  // namespace switchyard::bench
