package schedule_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/schedule"
)

func TestBudgetSaysWhatIsLacking(t *testing.T) {
	t.Parallel()
	b := schedule.Budget{CPU: 1.4, Memory: 11<<30 + 256<<20, Disk: 10 << 30, Network: 20e6}
	b.Take(&events.Resources{CPU: 0.5, Memory: 8 << 30, Network: 15e6})
	for _, test := range []struct {
		ask  *events.Resources
		want string
	}{
		{nil, ""},
		{&events.Resources{CPU: 0.9, Memory: 3<<30 + 256<<20, Disk: 10 << 30, Network: 5e6}, ""},
		{&events.Resources{CPU: 1}, "asks for 1 cores, and 0.9 of 1.4 is free"},
		{&events.Resources{CPU: 2}, "asks for 2 cores, and stages may use 1.4"},
		{&events.Resources{Memory: 4 << 30}, "asks for 4Gi of memory, and 3.2Gi of 11.2Gi is free"},
		{&events.Resources{Memory: 64 << 30}, "asks for 64Gi of memory, and stages may use 11.2Gi"},
		{&events.Resources{Disk: 11 << 30}, "asks for 11Gi of disk, and stages may use 10Gi"},
		{&events.Resources{Network: 6e6}, "asks for 6Mbps of network, and 5Mbps of 20Mbps is free"},
	} {
		ok, got := b.Fits(test.ask)
		if got != test.want || ok != (test.want == "") {
			t.Errorf("%+v: %v, %q, want %q", test.ask, ok, got, test.want)
		}
		never := strings.Contains(test.want, "stages may use")
		if ok, _ := b.Holds(test.ask); ok == never {
			t.Errorf("%+v: holds %v", test.ask, ok)
		}
	}
}

func TestBudgetIsExact(t *testing.T) {
	t.Parallel()
	b := schedule.Budget{CPU: 1}
	tenth := &events.Resources{CPU: 0.1}
	for i := range 10 { // ten times 0.1 is less than 1 in floating point
		if ok, lacking := b.Fits(tenth); !ok {
			t.Fatalf("the %dth tenth does not fit: %s", i+1, lacking)
		}
		b.Take(tenth)
	}
	if ok, _ := b.Fits(&events.Resources{CPU: 0.0001}); ok {
		t.Error("more than one core fits into one")
	}
	for _, n := range []float64{1.001, 0.57, 1.4, 8.2} { // of which 1000 times is a hair off
		b := schedule.Budget{CPU: n}
		if ok, lacking := b.Fits(&events.Resources{CPU: n}); !ok {
			t.Errorf("%v cores do not fit into as many: %s", n, lacking)
		}
	}
}

func TestBudgetOfAMachine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ machine, want schedule.Budget }{
		{schedule.Budget{CPU: 16, Memory: 16 << 30, Disk: 100 << 30, Network: 1e9},
			schedule.Budget{CPU: 11.2, Memory: 11468 << 20, Disk: 70 << 30, Network: 7e8}},
		{schedule.Budget{CPU: 2, Memory: 1 << 20}, schedule.Budget{CPU: 1.4, Memory: 1 << 20}},
		{schedule.Budget{CPU: 1}, schedule.Budget{CPU: 1}},
		{schedule.Budget{CPU: 0.5}, schedule.Budget{CPU: 0.5}},
		{},
	} {
		if got := schedule.BudgetOf(test.machine); got != test.want {
			t.Errorf("%+v: got %+v, want %+v", test.machine, got, test.want)
		}
	}
}

// anyAmount is often 0, which asks for nothing or limits nothing, and sometimes as much as can be written.
func anyAmount() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 100), rapid.Int64Range(1, 1<<50), rapid.Just(int64(1)<<62))
}

func anyRequest(t *rapid.T) *events.Resources {
	return &events.Resources{CPU: rapid.SampledFrom([]float64{0, 0.001, 0.1, 0.3, 1, 7, 100_000, rapid.Float64Range(0, 8).Draw(t, "cores")}).Draw(t, "cpu"),
		Memory: anyAmount().Draw(t, "memory"), Disk: anyAmount().Draw(t, "disk"), Network: anyAmount().Draw(t, "network")}
}

// TestBudgetIsAModelOfWhatIsTaken compares a budget with the plain sum of the requests that hold it, in whatever order
// they come and go.
func TestBudgetIsAModelOfWhatIsTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		b := schedule.Budget{CPU: r.CPU, Memory: r.Memory, Disk: r.Disk, Network: r.Network}
		empty := b
		var holders []*events.Resources
		for range rapid.IntRange(0, 40).Draw(t, "moves") {
			if len(holders) > 0 && rapid.Bool().Draw(t, "gives") {
				i := rapid.IntRange(0, len(holders)-1).Draw(t, "who")
				b.Give(holders[i])
				holders = append(holders[:i], holders[i+1:]...)
				if sum := memoryOf(holders); empty.Memory > 0 && b.Taken().Memory != sum {
					t.Fatalf("%d bytes are taken, and held are %d", b.Taken().Memory, sum)
				}
				continue
			}
			ask := anyRequest(t)
			ok, lacking := b.Fits(ask)
			holds, _ := empty.Holds(ask)
			if !holds && (ok || !strings.Contains(lacking, "asks for ") || !strings.Contains(lacking, "stages may use ")) {
				t.Fatalf("%+v is over %+v: fits %v, %q", ask, empty, ok, lacking)
			}
			if len(holders) == 0 && ok != holds {
				t.Fatalf("with nothing taken %+v fits into %+v: %v, and holds: %v (%s)", ask, empty, ok, holds, lacking)
			}
			if ok {
				b.Take(ask)
				holders = append(holders, ask)
			}
			within(t, &empty, b.Taken())
			if sum := memoryOf(holders); empty.Memory > 0 && b.Taken().Memory != sum {
				t.Fatalf("%d bytes are taken, and held are %d", b.Taken().Memory, sum)
			}
		}
		for _, h := range holders {
			b.Give(h)
		}
		if b != empty {
			t.Fatalf("all was given back, and %+v is taken", b.Taken())
		}
	})
}

func memoryOf(holders []*events.Resources) (sum int64) {
	for _, h := range holders {
		sum += h.Memory
	}
	return sum
}

// within wants what is taken to be no less than nothing and no more than there is.
func within(t *rapid.T, whole *schedule.Budget, taken events.Resources) {
	for _, d := range []struct {
		name         string
		taken, whole float64
	}{{"cpu", taken.CPU, whole.CPU}, {"memory", float64(taken.Memory), float64(whole.Memory)},
		{"disk", float64(taken.Disk), float64(whole.Disk)}, {"network", float64(taken.Network), float64(whole.Network)}} {
		if d.taken < 0 || d.whole > 0 && d.taken > max(d.whole, 0.001) || d.whole == 0 && d.taken != 0 {
			t.Fatalf("%s: %v taken of %v", d.name, d.taken, d.whole)
		}
	}
}
