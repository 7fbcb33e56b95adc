package configs

import (
	"fmt"
	"strings"
	"testing"
)

// request is a definition of four lines whose stage makes a request; in line 4 stands what is tested, in line 5 more of
// the stage.
func request(settings, stage string) string {
	return "name: x\nstages:\n  a:\n    http: {" + settings + "}\n" + stage
}

const toHost = `url: "https://example.com/", `

func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	secrets := "    secrets: {TOKEN: secret://token}\n"
	for _, c := range []badFile{
		{name: "no url", src: request("method: GET", ""), want: []string{"4:11 E_REQUIRED"}},
		{name: "relative", src: request("url: /a", ""), want: []string{"4:17 E_URL"}, says: []string{"http:// or https://"}},
		{name: "file", src: request(`url: "file:///etc/passwd"`, ""), want: []string{"4:17 E_URL"}},
		{name: "no host", src: request(`url: "https:///a"`, ""), want: []string{"4:17 E_URL"}, says: []string{"no host"}},
		{name: "port", src: request(`url: "https://h:70000/"`, ""), want: []string{"4:17 E_URL"}, says: []string{"65535"}},
		{name: "blank in the host", src: request(`url: "https://a b/"`, ""), want: []string{"4:17 E_URL"}},
		{name: "user", src: request(`url: "https://li:hunter22@h/"`, ""), want: []string{"4:17 E_URL"}, says: []string{"user or a password", "auth: {basic:"}},
		{name: "mixed", src: request(`url: "https://h/${{ trigger.time }}"`, ""), want: []string{"4:28 E_EXPR"}},
		{name: "header name", src: request(toHost+`headers: {"a b": x}`, ""), want: []string{"4:51 E_HTTP_HEADER"}},
		{name: "host header", src: request(toHost+`headers: {hOST: x}`, ""), want: []string{"4:51 E_HTTP_HEADER"}, says: []string{"comes from url"}},
		{name: "secret length", src: request(toHost+`secret_headers: {Content-Length: TOKEN}`, secrets), want: []string{"4:58 E_HTTP_HEADER"}},
		{name: "header value", src: request(toHost+`headers: {A: "x\r\nB: y"}`, ""), want: []string{"4:54 E_HTTP_HEADER"}, says: []string{"line break"}},
		{name: "header twice", src: request(toHost+`headers: {A: x, a: y}`, ""), want: []string{"4:57 E_HTTP_HEADER"}, says: []string{"already"}},
		{name: "header and secret", src: request(toHost+`headers: {X-Key: x}, secret_headers: {x-key: TOKEN}`, secrets), want: []string{"4:79 E_HTTP_HEADER"}},
		{name: "header and auth", src: request(toHost+`auth: {bearer: TOKEN}, headers: {Authorization: x}`, secrets), want: []string{"4:74 E_HTTP_HEADER"}, says: []string{"by auth"}},
		{name: "bearer", src: request(toHost+`auth: {bearer: TOKN}`, secrets), want: []string{"4:56 E_REF"}, says: []string{"did you mean TOKEN?"}},
		{name: "password", src: request(toHost+`auth: {basic: {user: li, password: PW}}`, ""), want: []string{"4:76 E_REF"}, says: []string{"secrets: {PW: secret://name}"}},
		{name: "secret header", src: request(toHost+`secret_headers: {X: TOKENS}`, secrets), want: []string{"4:61 E_REF"}, says: []string{"did you mean TOKEN?"}},
		{name: "secret query", src: request(toHost+`secret_query: {X: TOKENS}`, secrets), want: []string{"4:59 E_REF"}},
		{name: "two kinds of auth", src: request(toHost+`auth: {bearer: TOKEN, basic: {user: li, password: TOKEN}}`, secrets), want: []string{"4:47 E_ONE"}},
		{name: "no password", src: request(toHost+`auth: {basic: {user: li}}`, secrets), want: []string{"4:55 E_REQUIRED"}},
		{name: "two bodies", src: request(toHost+`method: POST, body: x, body_from: i`, "    inputs: {i: x}\n"), want: []string{"4:75 E_ONE"}},
		{name: "unknown input", src: request(toHost+`method: POST, body_from: order`, "    inputs: {orders: x}\n"), want: []string{"4:66 E_REF"}, says: []string{"did you mean orders?"}},
		{name: "no inputs", src: request(toHost+`method: POST, body_from: order`, ""), want: []string{"4:66 E_REF"}},
		{name: "status", src: request(toHost+`expect: [20]`, ""), want: []string{"4:50 E_RANGE"}},
		{name: "max_body", src: request(toHost+`max_body: 1GB`, ""), want: []string{"4:51 E_SIZE_UNIT"}},
		{name: "two files", src: request(toHost, "    outputs: {a: {path: a}, s: {path: s}}\n"), want: []string{"5:29 E_HTTP_OUTPUT"}, says: []string{"a and s", "at most one"}},
		{name: "unknown value", src: request(toHost, "    outputs: {statu: {}}\n"), want: []string{"5:15 E_HTTP_OUTPUT"}, says: []string{"did you mean status?"}},
		{name: "no network", src: request(toHost, "    network: none\n"), want: []string{"5:14 E_NETWORK_NONE"}},
		{name: "retry status", src: request(toHost, "    retry: {max: 1, on: [\"http:600\", \"http:6xx\", \"http:50\", \"http:\", \"http:conect\"]}\n"),
			want: []string{"5:26 E_VALUE", "5:38 E_VALUE", "5:50 E_VALUE", "5:61 E_VALUE", "5:70 E_VALUE"}, says: []string{"http:5xx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, problems := Parse("p.yaml", []byte(c.src), "/srv/pipelines", c.options)
			checkProblems(t, c, p, problems)
			if strings.Contains(problems.Error(), "hunter22") {
				t.Errorf("a password is repeated:\n%v", problems)
			}
		})
	}
}

func TestHTTPWarnings(t *testing.T) {
	t.Parallel()
	secrets := "    secrets: {TOKEN: secret://token}\n"
	for name, c := range map[string]struct{ src, want string }{
		"GET with a body":       {request(toHost+"body: x", ""), "4:47 E_HTTP_BODY"},
		"HEAD with a body":      {request(toHost+"method: HEAD, body_from: i", "    inputs: {i: x}\n"), "4:66 E_HTTP_BODY"},
		"secret over http":      {request(`url: "http://example.com", auth: {bearer: TOKEN}`, secrets), "4:17 E_HTTP_PLAIN"},
		"secret to an address":  {request(`url: "http://8.8.8.8", auth: {bearer: TOKEN}`, secrets), "4:17 E_HTTP_PLAIN"},
		"secret over loopback":  {request(`url: "http://[::1]:80", auth: {bearer: TOKEN}`, secrets), ""},
		"secret over https":     {request(toHost+"secret_query: {k: TOKEN}", secrets), ""},
		"no secret over http":   {request(`url: "http://example.com"`, ""), ""},
		"DELETE with a body":    {request(toHost+"method: DELETE, body: x", ""), ""},
		"address of a run":      {request(`url: "${{ trigger.payload.url }}", auth: {bearer: TOKEN}`, secrets), ""},
		"one file and values":   {request(toHost, "    outputs: {data: {path: a/b.json, format: json}, status: {type: integer}, headers: {}, body: {optional: true}}\n"), ""},
		"retry by status":       {request(toHost, "    retry: {max: 1, on: [timeout, \"http:503\", \"http:5xx\", \"http:connect\"]}\n"), ""},
		"everything of request": {request(toHost+`method: PUT, headers: {A: 1, B: "${{ trigger.time }}"}, query: {p: 2}, body_from: i, expect: [200, 302], auth: {basic: {user: li, password: TOKEN}}, secret_headers: {X: TOKEN}, max_body: 1Mi`, "    inputs: {i: x}\n"+secrets), ""},
	} {
		p, problems := Parse("p.yaml", []byte(c.src), "", Options{})
		got := ""
		for _, problem := range problems {
			got += fmt.Sprintf("%d:%d %s ", problem.Line, problem.Col, problem.Code)
		}
		if p == nil || strings.TrimSpace(got) != c.want {
			t.Errorf("%s: got %q, want %q\n%v", name, got, c.want, problems)
		}
	}
}

// What the executor is handed: sizes in bytes, texts as they were written, names of secrets and never their values.
func TestHTTPSettingsOfThePlan(t *testing.T) {
	t.Parallel()
	src := request(toHost+`method: POST, headers: {V: 010}, expect: [404], auth: {bearer: TOKEN}, body: {n: 1.50, t: "${{ trigger.time }}"}, max_body: 2Mi`,
		"    secrets: {TOKEN: secret://token}\n")
	src = strings.Replace(src, "010", `"010"`, 1)
	p, problems := Parse("p.yaml", []byte(src), "", Options{})
	if p == nil {
		t.Fatal(problems)
	}
	const want = `{"auth":{"bearer":"TOKEN"},"body":{"n":1.50,"t":"${{ trigger.time }}"},"expect":[404],"headers":{"V":"010"},"max_body":2097152,"method":"POST","url":"https://example.com/"}`
	if got := string(p.Plan().Stages[0].With); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
