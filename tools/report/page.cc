// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/page.h"

#include "report/chapters.h"
#include "report/headline.h"
#include "report/machine.h"
#include "report/markup.h"
#include "report/style.h"
#include "report/table.h"

namespace logitless::report {
namespace {

constexpr const char* kPageCss = R"(:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1rem 1rem 4rem;background:#fff;color:#1f2328;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;margin:.5rem 0 0;line-height:1.2}
.run{font-size:1.3rem;margin:3rem 0 .5rem;border-top:1px solid #d5d9de;padding-top:1.5rem}
.chapter{font-size:1.1rem;margin:2.25rem 0 .25rem}
p{margin:.5rem 0;max-width:60rem}
.quiet{color:#57606a;font-size:.875rem}
.claims{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr));gap:1rem;margin:1rem 0;padding:0;list-style:none}
.claims li{border-left:4px solid currentColor;padding-left:.8rem}
.claims p{margin:.15rem 0;color:#1f2328}
.claims strong{font-size:1.5rem;line-height:1.3;font-variant-numeric:tabular-nums}
.claims .name{color:inherit;font-weight:600}
.claims .quiet{color:#57606a;font-weight:400}
.note{border-left:4px solid #b88700;padding:.1rem 0 .1rem .8rem}
.panels{display:flex;flex-wrap:wrap;gap:1.5rem 2rem;margin-top:1rem}
.panel{flex:1 1 20rem;min-width:0;max-width:26rem;margin:0;overflow-x:auto}
.panel svg{display:block;width:100%;height:auto}
.panel.wide{max-width:100%;flex-basis:auto}
.panel.wide svg{width:auto;max-width:none}
.scroll{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:.8125rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{padding:.25rem .6rem;text-align:left;white-space:nowrap}
thead th{text-align:right;border-bottom:1px solid #9aa2ab}
thead th:first-child,thead th:last-child{text-align:left}
tbody th{font-weight:400;background:#fff;position:sticky;left:0}
.point th{background:#f3f5f7;white-space:normal}
.point span{position:sticky;left:.6rem;display:inline-block;max-width:min(58rem,86vw)}
.number{text-align:right}
.error{color:#b3261e;white-space:normal;max-width:40rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.875rem;margin:.5rem 0}
dt{color:#57606a}
dd{margin:0}
.settings{columns:17rem;margin:.5rem 0;padding:0;list-style:none;font:.8125rem/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media screen and (prefers-color-scheme:dark){
body{background:#0d1117;color:#e6edf3}
.run{border-color:#30363d}
.quiet,.claims .quiet,dt{color:#9aa5b1}
.claims p{color:#e6edf3}
.note{border-color:#d9a514}
thead th{border-color:#6b7480}
tbody th{background:#0d1117}
.point th{background:#161b22}
.error{color:#ff8a80}
}
@media print{
body{max-width:none;padding:0;font-size:11pt}
.panel,.claims li,tbody{break-inside:avoid}
.run,.chapter{break-after:avoid}
.panels{gap:1rem}
.panel{flex-basis:28%}
.scroll,.panel{overflow:visible}
table{font-size:7pt}
th,td{padding:.1rem .3rem;white-space:normal}
}
)";

// Nothing may be fetched and no script may run, whatever stands in the file.
constexpr const char* kPolicy = "default-src 'none'; style-src 'unsafe-inline'";

void write_head(Markup& html, const std::string& title) {
  html.raw("<!DOCTYPE html>\n").open("html", {{"lang", "en"}}).open("head").line_break();
  html.empty("meta", {{"charset", "utf-8"}}).line_break();
  html.empty("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", kPolicy}}).line_break();
  html.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}).line_break();
  html.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}}).line_break();
  html.element("title", title).line_break();
  html.open("style").raw(kPageCss).raw(chart_css()).close().close().line_break();
}

void write_claim_line(Markup& html, const std::string& figure, const std::string& words, const std::string& detail) {
  if (figure.empty()) return;
  html.open("p").element("strong", figure).text(" " + words + " ");
  html.element("span", {{"class", "quiet"}}, "(" + detail + ")").close();
}

void write_headline(Markup& html, const BenchRun& run) {
  const Headline top = headline(run);
  html.element("p", top.lead).line_break();
  html.open("ul", {{"class", "claims"}}).line_break();
  for (const Claim& claim : top.claims) {
    html.open("li", {{"class", series_class(claim.contender)}});
    html.open("p", {{"class", "name"}}).text(claim.contender);
    if (!claim.remark.empty()) html.element("span", {{"class", "quiet"}}, " (" + claim.remark + ")");
    html.close();
    write_claim_line(html, claim.memory, claim.memory_words, claim.memory_figures);
    write_claim_line(html, claim.time, claim.time_words, claim.time_figures);
    html.close().line_break();
  }
  html.close().line_break();
  for (const std::string& remark : top.remarks) html.element("p", {{"class", "note"}}, remark).line_break();
  for (const std::string& note : run.notes) html.element("p", {{"class", "note"}}, note).line_break();
}

void write_panel(Markup& html, const Panel& panel, int number) {
  // One that is wider than a phone scrolls in its own box, by keyboard too.
  if (panel.width > kPanelWidth) {
    html.open("figure", {{"class", "panel wide"}, {"tabindex", "0"}});
  } else {
    html.open("figure", {{"class", "panel"}});
  }
  open_svg(html, "drawing-" + std::to_string(number), panel.width, panel.height, panel.title, panel.description);
  html.raw(panel.body).close().close().line_break();
}

void write_chapter(Markup& html, const Chapter& chapter, const char* level, int& drawings) {
  html.element(level, {{"class", "chapter"}}, chapter.heading);
  html.element("p", {{"class", "quiet"}}, chapter.caption).line_break();
  for (const std::vector<Panel>& row : chapter.rows) {
    html.open("div", {{"class", "panels"}}).line_break();
    for (const Panel& panel : row) write_panel(html, panel, ++drawings);
    html.close().line_break();
  }
}

void write_facts(Markup& html, const std::vector<std::pair<std::string, std::string>>& facts) {
  html.open("dl").line_break();
  for (const auto& [name, value] : facts) html.element("dt", name).element("dd", value).line_break();
  html.close().line_break();
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

void write_setup(Markup& html, const BenchRun& run, const char* level) {
  html.element(level, {{"class", "chapter"}}, "How it was measured");
  std::vector<std::pair<std::string, std::string>> facts = {{"file", run.name},
                                                            {"date", run.started},
                                                            {"timed calls", std::to_string(run.iters)},
                                                            {"warm-up calls", std::to_string(run.warmup)},
                                                            {"inputs", run.inputs},
                                                            {"contenders", joined(run.contenders)}};
  for (const SweptKey& swept : run.sweep) facts.emplace_back("sweep", swept.key + " = " + joined(swept.values));
  write_facts(html, facts);
  html.element(level, {{"class", "chapter"}}, "Settings");
  html.open("ul", {{"class", "settings"}}).line_break();
  for (const std::string& setting : run.settings) html.element("li", setting).line_break();
  html.close().line_break();
  html.element(level, {{"class", "chapter"}}, "The machine");
  for (const std::string& warning : run.warnings) {
    html.element("p", {{"class", "note"}}, "Warning: " + warning).line_break();
  }
  write_facts(html, run.environment);
}

void write_run(Markup& html, const BenchRun& run, bool alone, int& drawings) {
  const char* level = alone ? "h2" : "h3";
  html.open("section").line_break();
  if (!alone) html.element("h2", {{"class", "run"}}, run.name).line_break();
  html.element("p", {{"class", "quiet"}}, machine_line(run)).line_break();
  write_headline(html, run);
  for (const Chapter& chapter : chapters(run)) write_chapter(html, chapter, level, drawings);
  html.element(level, {{"class", "chapter"}}, "All points").line_break();
  write_table(html, run);
  write_setup(html, run, level);
  html.close().line_break();
}

}  // namespace

std::string page(const std::vector<BenchRun>& runs) {
  Markup html;
  write_head(html, "logitless benchmark: " + runs.front().name);
  html.open("body").open("main").line_break();
  html.element("h1", "Dense and fused: memory and time").line_break();
  int drawings = 0;
  for (const BenchRun& run : runs) write_run(html, run, runs.size() == 1, drawings);
  html.close().close().close().line_break();
  return html.str();
}

}  // namespace logitless::report
