# Writes the C++ file that holds the page before and after its data:
#   cmake -D SOURCE=FOLDER -D CHART_JS=FILE -D OUTPUT=FILE -P assets.cmake
foreach(name page.html page.css page.js chart_js_licence.txt)
  file(READ ${SOURCE}/${name} ${name})
endforeach()
file(READ ${CHART_JS} chart_js)
set(script "/*\n${chart_js_licence.txt}*/\n${chart_js}\n${page.js}")
if(script MATCHES "</script|<!--|\\)asset\"")
  message(FATAL_ERROR "${CHART_JS} or page.js holds </script, <!-- or )asset\": it cannot stand in a page or in C++")
endif()
foreach(part page.css script)
  string(REPLACE "@${part}@" "${${part}}" page.html "${page.html}")
endforeach()
string(REPLACE "@runs@" ")asset\";\nconst char* const kPageEnd = R\"asset(" page.html "${page.html}")
file(WRITE ${OUTPUT} "namespace logitless::report {

extern const char *const kPageBegin, *const kPageEnd;
const char* const kPageBegin = R\"asset(${page.html})asset\";

}  // namespace logitless::report
")
