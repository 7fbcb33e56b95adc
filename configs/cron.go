package configs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // time zones are the same on every machine
)

// Schedule is a cron schedule of five fields. Each set has a bit for each value that fits.
type Schedule struct {
	Minutes, Hours, Days, Months, Weekdays uint64
	// AnyDay and AnyWeekday say that the field began with a star. When neither does, a day fits if either fits.
	AnyDay, AnyWeekday bool
	// AnyMinute and AnyHour say that the field began with a star: such jobs follow real time over a change of clocks.
	AnyMinute, AnyHour bool
	LastDay            bool   // L as day of month
	NearestWeekdays    uint64 // 15W: the working day nearest to the 15th
	LastWeekdays       uint64 // 5L: the last Friday
	NthWeekdays        [7]uint8
}

type cronField struct {
	name     string
	min, max int
	words    []string // names of the values from min on
}

var cronFields = []cronField{{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{"day of week", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}}}

var cronNicknames = map[string]string{"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}

// ParseSchedule reads a cron schedule: five fields with * , - / names, L, W and #, or @daily and its like.
func ParseSchedule(text string) (*Schedule, error) {
	if strings.HasPrefix(text, "@") {
		full, known := cronNicknames[strings.ToLower(text)]
		if !known {
			return nil, fmt.Errorf("%s is not known; one of %s", shortened(text), strings.Join(sortedKeys(cronNicknames), ", "))
		}
		text = full
	}
	parts := strings.Fields(text)
	if len(parts) != len(cronFields) {
		return nil, fmt.Errorf("it has %d fields, and 5 are due: minute, hour, day, month, weekday", len(parts))
	}
	s := &Schedule{}
	sets := []*uint64{&s.Minutes, &s.Hours, &s.Days, &s.Months, &s.Weekdays}
	for i, f := range cronFields {
		for item := range strings.SplitSeq(parts[i], ",") {
			if s.special(i, item) {
				continue
			}
			bits, err := f.bits(item)
			if err != nil {
				return nil, err
			}
			*sets[i] |= bits
		}
	}
	if s.Weekdays&(1<<7) != 0 {
		s.Weekdays = s.Weekdays&^(1<<7) | 1
	}
	s.AnyMinute, s.AnyHour = strings.HasPrefix(parts[0], "*"), strings.HasPrefix(parts[1], "*")
	s.AnyDay, s.AnyWeekday = strings.HasPrefix(parts[2], "*"), strings.HasPrefix(parts[4], "*")
	return s, nil
}

// special reads L, 15W, 5L and 1#2.
func (s *Schedule) special(field int, item string) bool {
	item = strings.ToUpper(item)
	switch field {
	case 2:
		if item == "L" {
			s.LastDay = true
			return true
		}
		if day, ok := numberBefore(item, "W", 1, 31); ok {
			s.NearestWeekdays |= 1 << day
			return true
		}
	case 4:
		if day, ok := numberBefore(item, "L", 0, 7); ok {
			s.LastWeekdays |= 1 << (day % 7)
			return true
		}
		if day, n, found := strings.Cut(item, "#"); found {
			d, okDay := numberBefore(day, "", 0, 7)
			nth, okNth := numberBefore(n, "", 1, 5)
			if okDay && okNth {
				s.NthWeekdays[d%7] |= 1 << nth
				return true
			}
		}
	}
	return false
}

func numberBefore(s, suffix string, low, high int) (int, bool) {
	digits, found := strings.CutSuffix(s, suffix)
	n, err := strconv.Atoi(digits)
	return n, found && err == nil && len(digits) <= 2 && n >= low && n <= high
}

func (f cronField) bits(item string) (uint64, error) {
	span, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n < 1 || n > f.max {
			return 0, fmt.Errorf("the %s has the step %q; 1 to %d are allowed", f.name, shortened(stepText), f.max)
		}
		step = n
	}
	low, high := f.min, f.max
	if span != "*" {
		from, to, ranged := strings.Cut(span, "-")
		var err error
		if low, err = f.value(from); err != nil {
			return 0, err
		}
		if high = low; ranged {
			if high, err = f.value(to); err != nil {
				return 0, err
			}
		} else if stepped {
			high = f.max
		}
		if low > high {
			return 0, fmt.Errorf("the %s %q runs backwards", f.name, shortened(span))
		}
	}
	var bits uint64
	for v := low; v <= high; v += step {
		bits |= 1 << v
	}
	return bits, nil
}

func (f cronField) value(text string) (int, error) {
	for i, word := range f.words {
		if strings.EqualFold(word, text) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || len(text) > 2 || text[0] == '+' || n < f.min || n > f.max {
		return 0, fmt.Errorf("the %s is %q; %d to %d are allowed", f.name, shortened(text), f.min, f.max)
	}
	return n, nil
}

// monthDays are the most days that each month can have.
var monthDays = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// Possible reports whether the schedule names a date that exists in some year.
func (s *Schedule) Possible() bool {
	weekday := s.Weekdays != 0 || s.LastWeekdays != 0 || s.NthWeekdays != [7]uint8{}
	if s.LastDay || weekday && !s.AnyDay && !s.AnyWeekday {
		return true
	}
	for month := 1; month <= 12; month++ {
		if s.Months&(1<<month) == 0 {
			continue
		}
		for day := 1; day <= monthDays[month]; day++ {
			if (s.Days|s.NearestWeekdays)&(1<<day) != 0 {
				return true
			}
		}
	}
	return false
}

func (c *checker) checkCron(n *node) {
	schedule := n.get("schedule")
	if schedule != nil && schedule.kind == scalarNode {
		text := schedule.text
		if strings.HasPrefix(text, "CRON_TZ=") || strings.HasPrefix(text, "TZ=") {
			c.at(schedule, "E_CRON", "the schedule holds a time zone", "five fields", "write it as timezone:")
		} else if s, err := ParseSchedule(text); err != nil {
			c.at(schedule, "E_CRON", "the schedule "+strconv.Quote(shortened(text))+" can't be read: "+err.Error(),
				"minute hour day-of-month month day-of-week", cronHint(text))
		} else if !s.Possible() {
			c.at(schedule, "E_CRON_NEVER", "the schedule "+strconv.Quote(text)+" names a date that never comes", "a date that exists", "")
		}
	}
	if zone := n.get("timezone"); zone != nil && zone.kind == scalarNode {
		if _, err := time.LoadLocation(zone.text); err != nil || zone.text == "Local" || zone.text == "" {
			c.at(zone, "E_TZ", "the time zone "+strconv.Quote(shortened(zone.text))+" is not known", "a name of the IANA database",
				"use Asia/Shanghai, Europe/Berlin or UTC")
		}
	}
}

func cronHint(text string) string {
	switch {
	case strings.HasPrefix(text, "@"):
		return didYouMean(text, sortedKeys(cronNicknames))
	case len(strings.Fields(text)) == 6:
		return "there is no field for seconds"
	}
	return ""
}
