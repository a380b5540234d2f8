# Writes the C++ file that holds what a page is made of:
#   cmake -D SOURCE=FOLDER -D CHART_JS=FILE -D OUTPUT=FILE -P assets.cmake
set(base64 ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)

# SHA-256 in base64, three bytes by four letters; 32 bytes leave two over.
function(hash_in_base64 text result)
  string(SHA256 hex "${text}")
  string(APPEND hex 00)
  set(letters "")
  foreach(start RANGE 0 60 6)
    string(SUBSTRING ${hex} ${start} 6 three_bytes)
    foreach(shift 18 12 6 0)
      math(EXPR index "0x${three_bytes} >> ${shift} & 63")
      string(SUBSTRING ${base64} ${index} 1 letter)
      string(APPEND letters ${letter})
    endforeach()
  endforeach()
  string(REGEX REPLACE "A$" "=" letters ${letters})
  set(${result} ${letters} PARENT_SCOPE)
endfunction()

foreach(name page.html page.css page.js chart_js_licence.txt)
  file(READ ${SOURCE}/${name} ${name})
endforeach()
file(READ ${CHART_JS} chart_js)
set(script "/*\n${chart_js_licence.txt}*/\n${chart_js}\n${page.js}")
if(script MATCHES "</script|<!--|\\)asset\"")
  message(FATAL_ERROR "${CHART_JS} or page.js holds </script, <!-- or )asset\": it cannot stand in a page or in C++")
endif()
hash_in_base64("${script}" hash)
file(WRITE ${OUTPUT} "namespace logitless::report {

extern const char *const kPageTemplate, *const kPageStyle, *const kPageScript, *const kScriptHash;

const char* const kPageTemplate = R\"asset(${page.html})asset\";
const char* const kPageStyle = R\"asset(${page.css})asset\";
const char* const kPageScript = R\"asset(${script})asset\";
const char* const kScriptHash = \"${hash}\";

}  // namespace logitless::report
")
