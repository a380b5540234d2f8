# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
# Turns a page of this folder into roff, for `man`. It knows what the pages use: headings, paragraphs, lists whose entries
# begin with code and a colon, indented code, `code` and [links](...).
#   awk -v version=0.1.0 -f roff.awk logitless.1.md

function inline(text,   result) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  while (match(text, /\[[^][]*\]\([^)]*\)/)) {
    result = substr(text, RSTART + 1, RLENGTH - 1)
    sub(/\].*/, "", result)
    text = substr(text, 1, RSTART - 1) result substr(text, RSTART + RLENGTH)
  }
  while (sub(/`/, "\\fB", text)) {
    if (!sub(/`/, "\\fR", text)) {
      print FILENAME ":" FNR ": code must begin and end on one line" > "/dev/stderr"
      exit failed = 1
    }
  }
  return text
}

# A dot or a quote at the front of a line would be a request.
function put(text) { print (text ~ /^[.']/ ? "\\&" : "") text }

function end_code() {
  if (code) print ".fi\n.RE"
  code = 0
}

/^# / {
  name = $2
  sub(/\(.*/, "", name)
  printf ".TH \"%s\" \"1\" \"\" \"logitless %s\" \"logitless manual\"\n", toupper(name), version
  print ".nh"
  next
}
/^## / {
  end_code()
  print ".SH " toupper(substr($0, 4))
  start = 1
  next
}
/^    / {
  if (!code) print ".PP\n.RS 4\n.nf"
  code = 1
  line = substr($0, 5)
  gsub(/\\/, "\\e", line)
  gsub(/-/, "\\-", line)
  put(line)
  next
}
/^$/ {
  end_code()
  if (!start) paragraph = 1
  next
}
/^- / {
  end_code()
  paragraph = start = 0
  colon = index($0, "`: ")
  if (!colon) {
    print FILENAME ":" FNR ": an entry must begin with code and a colon" > "/dev/stderr"
    exit failed = 1
  }
  print ".TP\n" inline(substr($0, 3, colon - 2))
  put(inline(substr($0, colon + 3)))
  next
}
{
  if (paragraph) print ".PP"
  paragraph = start = 0
  sub(/^  /, "")
  put(inline($0))
}
END {
  if (failed) exit failed
  end_code()
}
