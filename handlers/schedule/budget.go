package schedule

import (
	"fmt"
	"math"
	"strconv"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// Budget is what stages may use of the machine together, and what of it is taken. A figure of 0 is not limited. It
// belongs to the engine's loop and is not safe for concurrent use; a copy is a budget of its own.
//
// Sums are exact whatever the order in which stages come and go: cores are counted in whole thousandths, a request's
// rounded up and the budget's rounded down.
type Budget struct {
	CPU     float64 // cores
	Memory  int64   // bytes
	Disk    int64   // bytes
	Network int64   // bits a second

	taken amounts
}

// amounts are thousandths of a core, bytes of memory, bytes of disk and bits a second, in the order of dimensions.
type amounts [4]int64

// dimension is how one of the amounts is spoken of.
type dimension struct {
	of    string // behind the amount
	exact func(amount int64) string
	about func(amount int64) string
}

var dimensions = [len(amounts{})]dimension{
	{" cores", cores, cores},
	{" of memory", configs.SizeText, configs.SizeAbout},
	{" of disk", configs.SizeText, configs.SizeAbout},
	{" of network", configs.RateText, configs.RateText},
}

func cores(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/1000, 'f', -1, 64)
}

// thousandths is rounded to a millionth first, so that 1.4 is 1400 and not a hair more or less.
func thousandths(cores float64, round func(float64) float64) int64 {
	return int64(round(math.Round(cores*1e6) / 1e3))
}

func (b *Budget) whole() amounts {
	if b.CPU <= 0 {
		return amounts{0, b.Memory, b.Disk, b.Network}
	}
	return amounts{max(1, thousandths(b.CPU, math.Floor)), b.Memory, b.Disk, b.Network}
}

func asked(r *events.Resources) amounts {
	if r == nil {
		return amounts{}
	}
	return amounts{thousandths(r.CPU, math.Ceil), r.Memory, r.Disk, r.Network}
}

// Holds reports whether the request fits into the budget when nothing is taken: a request that does not will never
// start. lacking then says the first figure that is too large, and how large it may be.
func (b *Budget) Holds(r *events.Resources) (ok bool, lacking string) {
	whole := b.whole()
	for i, n := range asked(r) {
		if whole[i] > 0 && n > whole[i] {
			d := dimensions[i]
			return false, fmt.Sprintf("asks for %s%s, and stages may use %s", d.exact(n), d.of, d.about(whole[i]))
		}
	}
	return true, ""
}

// Fits reports whether the request fits into what is free now. lacking says the first figure that does not: what is
// asked for, and what is free, or all that there is when the request never fits.
func (b *Budget) Fits(r *events.Resources) (ok bool, lacking string) {
	if ok, lacking = b.Holds(r); !ok {
		return false, lacking
	}
	whole := b.whole()
	for i, n := range asked(r) {
		if free := max(0, whole[i]-b.taken[i]); n > 0 && whole[i] > 0 && n > free {
			d := dimensions[i]
			return false, fmt.Sprintf("asks for %s%s, and %s of %s is free", d.exact(n), d.of, d.about(free), d.about(whole[i]))
		}
	}
	return true, ""
}

// Take counts the request as taken. It does so also when it does not fit: a body that runs already uses what it uses. A
// request over the whole budget takes all of it.
func (b *Budget) Take(r *events.Resources) {
	for i, n := range b.counted(r) {
		b.taken[i] += n
	}
}

// Give gives back what Take took for the same request.
func (b *Budget) Give(r *events.Resources) {
	for i, n := range b.counted(r) {
		b.taken[i] = max(0, b.taken[i]-n)
	}
}

// counted is what a request takes: nothing where there is no limit.
func (b *Budget) counted(r *events.Resources) amounts {
	whole, n := b.whole(), asked(r)
	for i := range n {
		n[i] = min(n[i], whole[i])
	}
	return n
}

// Taken is what the running stages take together of the figures that are limited.
func (b *Budget) Taken() events.Resources {
	return events.Resources{CPU: float64(b.taken[0]) / 1000, Memory: b.taken[1], Disk: b.taken[2], Network: b.taken[3]}
}

// Headroom is the share of a machine that is kept free: for the engine, the system, and stages that use more than they
// asked for.
const Headroom = 0.3

// BudgetOf gives the budget of a machine when nothing is configured: each figure less Headroom, sizes in whole MiB so
// that they can be written down. One core is always given where there is one: else a machine of one core could run no
// stage that asks for a core. A figure of 0 is unknown, and is not limited.
func BudgetOf(machine Budget) Budget {
	const whole = 1 - Headroom
	b := Budget{CPU: max(whole*machine.CPU, min(machine.CPU, 1)), Network: int64(whole * float64(machine.Network))}
	b.CPU = float64(thousandths(b.CPU, math.Floor)) / 1000
	size := func(n int64) int64 {
		if n >= 2<<20 {
			return int64(whole*float64(n)) &^ (1<<20 - 1)
		}
		return n
	}
	b.Memory, b.Disk = size(machine.Memory), size(machine.Disk)
	return b
}
