package executor

// hostileNames are file names and values that must reach a stage as one value each. The list follows real reports of
// names that broke a tool.
var hostileNames = []string{
	"report 2026.csv", "报表 2026年11月.csv", "レポート.csv", "📦 order #42 (final) v2.csv", "line1\nline2.csv",
	"tab\there.csv", "-rf", "-rf.csv", "--help", "--", "$HOME.csv", "`id`.csv", "$(touch pwned).csv", "$(id)", "; rm -rf .",
	"a;b&c|d.csv", `it's "quoted".csv`, "100%.csv", `back\slash.csv`, "*.csv", "[table].csv", "名前, 年齢.csv",
	"..hidden..csv", "trailing space .csv", "UPPER.CSV", "no_extension", "e\u0301.csv", "\u00e9.csv", ".csv",
	"DgaH$a43", "an$example-user", "xy$", "a b", "123$$6", "\x1b[31mred", "trailing newline\n",
}
