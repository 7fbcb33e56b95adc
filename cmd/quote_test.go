package cmd

import (
	"os/exec"
	"testing"

	"pgregory.net/rapid"
)

// What is quoted comes out of a shell as it was, with the secrets in the places of their tokens.
func TestQuote(t *testing.T) {
	t.Parallel()
	q := tokenPattern(map[string]string{"TOKEN": "s0123456789abcdefabcd"})
	rapid.Check(t, func(r *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "'", `"`, "$HOME", "`id`", `\`, "\n", " ", "*", "~", "!", "#", "-n", "=", "中文", "s0123456789abcdefabcd"}), 0, 6).Draw(r, "parts")
		word, want := "", ""
		for _, p := range parts {
			word += p
			if p == "s0123456789abcdefabcd" {
				p = "it's \"secret\" $x"
			}
			want += p
		}
		c := exec.Command("/bin/sh", "-c", "printf %s x "+q.quote(word))
		c.Env = []string{`TOKEN=it's "secret" $x`}
		out, err := c.Output()
		if err != nil || string(out) != "x"+want {
			r.Fatalf("%q became %s, which gave %q, %v; want %q", word, q.quote(word), out, err, want)
		}
	})
}
