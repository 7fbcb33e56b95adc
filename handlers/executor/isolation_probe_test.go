package executor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
)

// fakeShell is a shell on a machine that can do only what is said.
func fakeShell(change func(*Isolation)) *Shell {
	shell := NewShell(Settings{Owner: owner})
	i := Isolated()
	change(&i)
	shell.supervisor.isolated = func() Isolation { return i }
	return shell
}

func withoutLandlock(i *Isolation) { i.Landlock, i.Level = 0, LevelEnv }

func withoutFilters(i *Isolation) { i.Filters, i.Observed, i.Level = false, false, LevelLandlock }

func withoutNotices(i *Isolation) { i.Observed = false }

// TestWhatAMachineCannotDo: nothing weaker is ever taken silently, and nothing fails that demands nothing.
func TestWhatAMachineCannotDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		machine                     func(*Isolation)
		isolation, network, require string
		level                       string // empty: it fails
		says                        []string
	}{
		"no Landlock, enforce":               {withoutLandlock, "enforce", "none", "", "", []string{"Landlock", "isolation: observe"}},
		"no Landlock, enforce with network":  {withoutLandlock, "enforce", "allow", "", "", []string{"Landlock", "isolation: observe"}},
		"no Landlock, observe":               {withoutLandlock, "observe", "none", "", LevelEnv, nil},
		"no Landlock, off":                   {withoutLandlock, "off", "", "", LevelEnv, nil},
		"no Landlock, require env":           {withoutLandlock, "observe", "", LevelEnv, LevelEnv, nil},
		"no filters, enforce":                {withoutFilters, "enforce", "none", "", "", []string{"seccomp", "network: allow"}},
		"no filters, off without network":    {withoutFilters, "off", "none", "", "", []string{"seccomp", "network: allow"}},
		"no filters, enforce with network":   {withoutFilters, "enforce", "allow", "", LevelLandlock, nil},
		"no filters, require them":           {withoutFilters, "enforce", "allow", LevelSeccomp, "", []string{"seccomp"}},
		"no filters, observe":                {withoutFilters, "observe", "", "", LevelEnv, nil},
		"no notices, enforce":                {withoutNotices, "enforce", "none", "", LevelSeccomp, nil},
		"no notices, observe":                {withoutNotices, "observe", "none", "", LevelEnv, nil},
		"all, observe requires Landlock":     {func(*Isolation) {}, "observe", "", LevelLandlock, "", []string{"isolation: {mode: enforce, require: landlock}"}},
		"all, enforce requires a container":  {func(*Isolation) {}, "enforce", "none", LevelContainer, "", []string{"container:"}},
		"all, enforce with network requires": {func(*Isolation) {}, "enforce", "allow", LevelSeccomp, LevelSeccomp, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := isolatedCall(t, "echo ran > ran")
			c.Isolation, c.Network, c.Require = test.isolation, test.network, test.require
			r, failure := fakeShell(test.machine).Execute(context.Background(), c)
			if test.level != "" {
				should := test.isolation != "off"
				blind := should && !fakeShell(test.machine).supervisor.isolated().Observed
				if slices.Contains(r.Accesses, Unobserved) != blind {
					t.Errorf("observed by a machine that cannot, or the other way about: %v", r.Accesses)
				}
				if failure != nil || r.Isolation != test.level || r.Hermetic != (test.isolation == "enforce" && test.network == "none") {
					t.Errorf("%+v, level %s, hermetic %t", failure, r.Isolation, r.Hermetic)
				}
				return
			}
			if failure == nil || failure.Class != events.System || !strings.HasPrefix(failure.Reason, "E_ISOLATION: ") || r.Hermetic {
				t.Fatalf("%+v, hermetic %t", failure, r.Hermetic)
			}
			for _, word := range test.says {
				if !strings.Contains(failure.Reason, word) {
					t.Errorf("%q does not say %q", failure.Reason, word)
				}
			}
		})
	}
}

// TestWithoutNoticesWhatIsRefusedStaysRefused, though nobody can name it.
func TestWithoutNoticesWhatIsRefusedStaysRefused(t *testing.T) {
	t.Parallel()
	c, _ := isolatedCall(t, `cat "$OUTSIDE/data.csv"`)
	r, failure := fakeShell(withoutNotices).Execute(context.Background(), c)
	if failure == nil || failure.Class != events.ExecFailed || !slices.Equal(r.Accesses, []events.Pair{Unobserved}) || !strings.Contains(string(r.Stderr.Tail(200)), "Permission denied") ||
		!strings.Contains(failure.Reason, "docs/isolation.md") {
		t.Errorf("%+v %v %s", failure, r.Accesses, r.Stderr.Tail(200))
	}
}

// TestProbe: this machine's kernel says what the probe found, by other ways.
func TestProbe(t *testing.T) {
	t.Parallel()
	i := Isolated()
	if abi := landlockABI(); i.Landlock != abi && i.Landlock != 0 {
		t.Errorf("ABI %d, the kernel has %d", i.Landlock, abi)
	}
	if i.Observed && (i.gate == 0 || !i.Filters) || (i.Level == LevelSeccomp) != (i.Landlock > 0 && i.Filters) {
		t.Errorf("%+v", i)
	}
}

// TestFilters runs the programs as the kernel does, call by call.
func TestFilters(t *testing.T) {
	t.Parallel()
	const gate = 0x7f_1234_5678
	deny, kill := unix.SECCOMP_RET_ERRNO|uint32(unix.EACCES), uint32(unix.SECCOMP_RET_KILL_PROCESS)
	absent := unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	const yes, notify = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_USER_NOTIF
	none, sealed, observe := filterKind{none: true}, filterKind{none: true, sealed: true}, filterKind{observe: true}
	all := filterKind{none: true, sealed: true, observe: true}
	for name, test := range map[string]struct {
		call notification
		want map[filterKind]uint32
	}{
		"read":          {notification{nr: unix.SYS_READ}, map[filterKind]uint32{none: yes, sealed: yes, observe: yes, all: yes}},
		"open":          {notification{nr: unix.SYS_OPENAT}, map[filterKind]uint32{none: yes, sealed: yes, observe: notify, all: notify}},
		"exec":          {notification{nr: unix.SYS_EXECVE, from: gate + 1}, map[filterKind]uint32{none: yes, observe: notify, all: notify}},
		"exec, above":   {notification{nr: unix.SYS_EXECVE, from: gate + 1<<32}, map[filterKind]uint32{observe: notify}},
		"first exec":    {notification{nr: unix.SYS_EXECVE, from: gate}, map[filterKind]uint32{none: yes, observe: yes, all: yes}},
		"inet socket":   {notification{nr: unix.SYS_SOCKET, args: [6]uint64{unix.AF_INET, unix.SOCK_STREAM}}, map[filterKind]uint32{none: deny, sealed: deny, observe: yes, all: notify}},
		"local stream":  {notification{nr: unix.SYS_SOCKET, args: [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}}, map[filterKind]uint32{none: yes, sealed: yes, observe: yes, all: yes}},
		"local packets": {notification{nr: unix.SYS_SOCKET, args: [6]uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}}, map[filterKind]uint32{none: yes, sealed: deny, all: deny}},
		"pair":          {notification{nr: unix.SYS_SOCKETPAIR, args: [6]uint64{unix.AF_UNIX}}, map[filterKind]uint32{none: yes, all: yes}},
		"tipc pair":     {notification{nr: unix.SYS_SOCKETPAIR, args: [6]uint64{unix.AF_TIPC}}, map[filterKind]uint32{none: deny, all: deny, observe: yes}},
		"connect":       {notification{nr: unix.SYS_CONNECT}, map[filterKind]uint32{none: yes, sealed: deny, observe: notify, all: notify}},
		"ring":          {notification{nr: unix.SYS_IO_URING_SETUP}, map[filterKind]uint32{none: absent, observe: absent}},
		"foreign":       {notification{nr: unix.SYS_SOCKET, arch: unix.AUDIT_ARCH_I386}, map[filterKind]uint32{none: kill, all: kill, observe: yes}},
		"x32":           {notification{nr: 0x40000000 + 41}, map[filterKind]uint32{none: kill, observe: yes}},
	} {
		if name == "x32" && foreignCalls == 0 {
			continue
		}
		if test.call.arch == 0 {
			test.call.arch = auditArch
		}
		for kind, want := range test.want {
			if got := interpretFilter(t, newFilter(kind, gate), &test.call); got != want {
				t.Errorf("%s, %+v: %#x, want %#x", name, kind, got, want)
			}
		}
	}
}

// TestFiltersLetEverythingElseThrough: of all numbers only those of the table lead anywhere.
func TestFiltersLetEverythingElseThrough(t *testing.T) {
	t.Parallel()
	for _, kind := range []filterKind{{none: true}, {none: true, sealed: true}, {observe: true}, {none: true, sealed: true, observe: true}} {
		f := newFilter(kind, 1<<40)
		for nr := range int32(600) {
			got := interpretFilter(t, f, &notification{nr: nr, arch: auditArch, args: [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}})
			want := uint32(unix.SECCOMP_RET_ALLOW)
			switch call := callOf[uint32(nr)]; {
			case nr == unix.SYS_IO_URING_SETUP:
				want = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
			case kind.observe && call != nil && call.use != asks:
				want = unix.SECCOMP_RET_USER_NOTIF
			case kind.sealed && nr == unix.SYS_CONNECT:
				want = unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
			}
			if got != want {
				t.Errorf("%+v, call %d: %#x, want %#x", kind, nr, got, want)
			}
		}
	}
}

// interpretFilter is the part of BPF that the filters use.
func interpretFilter(t *testing.T, f filter, n *notification) uint32 {
	t.Helper()
	words := map[uint32]uint32{seenCall: uint32(n.nr), seenArch: n.arch, seenFrom: uint32(n.from), seenFrom + 4: uint32(n.from >> 32)}
	for i, a := range n.args {
		words[seenFirst+uint32(8*i)], words[seenFirst+uint32(8*i)+4] = uint32(a), uint32(a>>32)
	}
	var a uint32
	for pc := 0; pc < len(f); pc++ {
		in := f[pc]
		jump := func(holds bool) {
			if holds {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = words[in.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %+v", in)
		}
	}
	t.Fatal("the program does not end")
	return 0
}

func TestDeclare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found []events.Pair
		want  []string
	}{
		"nothing": {nil, nil},
		"files": {[]events.Pair{{Name: "read", Value: "/data/orders 2026.csv"}, {Name: "read", Value: "/data/a/Orders.csv"}, {Name: "read", Value: "/data/b/orders.csv"}},
			[]string{`inputs: {orders: {file: /data/a/Orders.csv}, orders_2: {file: /data/b/orders.csv}, orders_2026: {file: "/data/orders 2026.csv"}}`}},
		"a directory and a file of it": {[]events.Pair{{Name: "list", Value: "/data"}, {Name: "read", Value: "/data/x.csv"}}, []string{"inputs: {data: {file: /data}}"}},
		"a program and its parts": {[]events.Pair{{Name: "execute", Value: "/opt/tool/bin/tool"}, {Name: "read", Value: "/opt/tool/lib/libx.so.1"}, {Name: "read", Value: "/opt/other/x.py"}},
			[]string{"isolation: {mode: enforce, readable: [/opt/other, /opt/tool]}"}},
		"a program of one's own": {[]events.Pair{{Name: "execute", Value: "/home/ann/bin/tool"}}, []string{"isolation: {mode: enforce, readable: [/home/ann/bin]}"}},
		"network":                {[]events.Pair{{Name: "connect", Value: "10.0.0.1:443"}, {Name: "connect", Value: "tcp"}}, []string{"network: allow"}},
		"writes are not inputs":  {[]events.Pair{{Name: "write", Value: "/data/x"}}, nil},
		"no words of YAML":       {[]events.Pair{{Name: "read", Value: "/data/null"}, {Name: "read", Value: "/data/2026.csv"}}, []string{"inputs: {file_2026: {file: /data/2026.csv}, file_null: {file: /data/null}}"}},
		"left behind": {[]events.Pair{{Name: "leave", Value: "out/a.csv"}, {Name: "leave", Value: "out/parts/"}, {Name: "leave", Value: "out/... and 7 more"}},
			[]string{"outputs: {a: {path: a.csv}, parts: {path: parts/}}"}},
		"more": {[]events.Pair{{Name: "read", Value: "/data/many/"}, {Name: "more", Value: "7"}}, []string{"inputs: {many: {file: /data/many}}"}},
	} {
		if diff := cmp.Diff(test.want, Declare(test.found)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestFold: a long list becomes a short one that still speaks for every access.
func TestFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a accesses
		for range rapid.IntRange(0, 300).Draw(t, "n") {
			path := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 5).Draw(t, "path"), "/")
			a.add(events.Pair{Name: rapid.SampledFrom([]string{"read", "write"}).Draw(t, "kind"), Value: path}, true)
		}
		most := rapid.IntRange(8, 64).Draw(t, "most")
		folded := fold(a.all(), most, 0)
		if len(folded) > most+1 || !slices.IsSortedFunc(folded[:min(len(folded), most)], comparePairs) {
			t.Fatalf("%d of at most %d: %v", len(folded), most, folded)
		}
		if len(a.soft) <= most && len(folded) != len(a.soft) {
			t.Fatalf("folded without need: %v", folded)
		}
		more := len(folded) > 0 && folded[len(folded)-1].Name == "more"
		for p := range a.soft {
			spoken := slices.ContainsFunc(folded, func(f events.Pair) bool {
				return f == p || f.Name == p.Name && strings.HasSuffix(f.Value, "/") && strings.HasPrefix(p.Value, f.Value)
			})
			if !spoken && !more {
				t.Fatalf("nothing speaks for %v: %v", p, folded)
			}
		}
	})
	var a accesses
	for i := range maxFound + 5 {
		a.add(events.Pair{Name: "read", Value: strings.Repeat("/x", i+1)}, true)
	}
	if list := a.list(); len(list) > MaxAccesses+1 || list[len(list)-1].Name != "more" {
		t.Errorf("%v", list)
	}
}

// TestPerturbation: each field changes what the stage sees, in every mode.
func TestPerturbation(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"off", "observe", "enforce"} {
		c, _ := isolatedCall(t, `umask; nproc; cat /proc/sys/kernel/hostname; date +%Y; echo "$TZ $APOLLO_SEED $EXTRA"`)
		c.Isolation = mode
		c.Perturb = &Perturbation{Env: map[string]string{"TZ": "Asia/Shanghai", "EXTRA": "1", markName: "mine"}, Umask: 0o002, CPUs: []int{0}, Hostname: "elsewhere", Clock: 10 * 365 * 24 * time.Hour}
		r, failure := run(t, c)
		if failure != nil {
			t.Fatalf("%+v %s", failure, r.Stderr.Tail(1000))
		}
		got := strings.Split(strings.TrimSpace(string(r.Stdout.Tail(1000))), "\n")
		want := []string{"0002", "1", "elsewhere", time.Now().Add(c.Perturb.Clock).UTC().Format("2006"), "Asia/Shanghai 42 1"}
		if slices.Contains(c.Perturb.Missed, "Hostname") {
			want[2] = got[2]
		}
		if slices.Contains(c.Perturb.Missed, "Clock") != (clockLibrary() == "") {
			t.Errorf("missed %v, library %q", c.Perturb.Missed, clockLibrary())
		}
		if clockLibrary() == "" {
			want[3] = got[3]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
	}
	name, err := unixHostname()
	if err != nil || name == "elsewhere" {
		t.Errorf("the engine's name is %q, %v", name, err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil || set.Count() < 2 {
		t.Logf("affinity of the engine: %d, %v", set.Count(), err)
	}
}

func unixHostname() (string, error) {
	var u unix.Utsname
	err := unix.Uname(&u)
	return unix.ByteSliceToString(u.Nodename[:]), err
}
