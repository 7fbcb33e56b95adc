package configs

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var namePattern = regexp.MustCompile(NamePattern)

// NamePattern is what every identifier looks like: pipelines, stages, roles, parameters, contracts.
const NamePattern = `^[a-z0-9][a-z0-9_-]{0,127}$`

var (
	errRange  = errors.New("out of range")
	digits    = regexp.MustCompile(`^[0-9]+$`)
	otherUnit = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*(d|days?|w|weeks?|sec|secs|seconds?|min|mins|minutes?|hours?|hrs?)$`)
	sizeText  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)$`)
	rateText  = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(k|M|G|)bps$`)
)

// parseDuration reads Go's syntax. The hint says how to write what is not Go's, as 1d.
func parseDuration(s string) (d time.Duration, hint string, err error) {
	d, err = time.ParseDuration(s)
	if err == nil {
		return d, "", nil
	}
	if digits.MatchString(s) {
		return 0, "add the unit, as " + s + "s", err
	}
	if m := otherUnit.FindStringSubmatch(s); m != nil {
		hours := map[byte]float64{'d': 24, 'w': 24 * 7, 's': 1.0 / 3600, 'm': 1.0 / 60, 'h': 1}[m[2][0]]
		if n, e := strconv.ParseFloat(m[1], 64); e == nil && n*hours < 2_000_000 {
			return 0, "use " + DurationText(time.Duration(n*hours*float64(time.Hour))), err
		}
	}
	if strings.Contains(err.Error(), "invalid duration") && regexp.MustCompile(`^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$`).MatchString(s) {
		return 0, "at most 290 years", errRange
	}
	return 0, "use h, m, s or ms, as 90s or 1h30m", err
}

// DurationText writes a duration the shortest way: 24h, 1h30m, 90s stays 1m30s.
func DurationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseSize reads bytes: 512, 256Mi, 1Gi (powers of 1024) or 10M (powers of 1000).
func parseSize(s string) (int64, error) {
	m := sizeText.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("parse size %q", s)
	}
	units := map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
	return scaled(m[1], units[m[2]])
}

// parseRate reads bits a second: 2Mbps, 500kbps.
func parseRate(s string) (int64, error) {
	m := rateText.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("parse bandwidth %q", s)
	}
	return scaled(m[1], map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[m[2]])
}

func scaled(number string, unit float64) (int64, error) {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, err
	}
	if f*unit >= math.MaxInt64 {
		return 0, errRange
	}
	return int64(f * unit), nil
}

// SizeText writes bytes in the largest unit of 1024 that leaves a whole number.
func SizeText(n int64) string {
	for _, u := range []struct {
		suffix string
		size   int64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// SizeAbout writes bytes for people, with at most one digit behind the point: 11.2Gi. It is rounded down, so that what it
// says may be used can be written into a definition.
func SizeAbout(n int64) string {
	for _, u := range []struct {
		suffix string
		size   int64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n >= u.size {
			whole, tenths := n/u.size, n%u.size*10/u.size
			if tenths == 0 {
				return strconv.FormatInt(whole, 10) + u.suffix
			}
			return fmt.Sprintf("%d.%d%s", whole, tenths, u.suffix)
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseSize reads a size as definitions have it: 512, 256Mi, 1Gi, 10M.
func ParseSize(s string) (int64, error) { return parseSize(s) }

// ParseRate reads a bandwidth as definitions have it: 2Mbps, 500kbps.
func ParseRate(s string) (int64, error) { return parseRate(s) }

// RateText writes bits a second in the largest unit that leaves a whole number.
func RateText(n int64) string {
	for _, u := range []struct {
		suffix string
		size   int64
	}{{"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10) + "bps"
}
