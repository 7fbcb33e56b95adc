package configs

import "slices"

// nearest gives the candidate that a person most likely meant, or "".
func nearest(word string, candidates []string) string {
	best, distance := "", len([]rune(word))/2+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(word, c, distance); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// editDistance is the Damerau-Levenshtein distance (adjacent letters swapped count as one), or limit when it is no less.
func editDistance(a, b string, limit int) int {
	s, t := []rune(a), []rune(b)
	if len(s)-len(t) >= limit || len(t)-len(s) >= limit {
		return limit
	}
	older, old, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range old {
		old[j] = j
	}
	for i := range s {
		row[0] = i + 1
		for j := range t {
			change := 1
			if s[i] == t[j] {
				change = 0
			}
			row[j+1] = min(old[j+1]+1, row[j]+1, old[j]+change)
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, old, row = old, row, older
	}
	return min(old[len(t)], limit)
}

// didYouMean is a hint that names the nearest candidate, or "".
func didYouMean(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}
