package trigger

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"unicode/utf8"
)

// Fingerprint tells whether a file is still the one that was handled. It is a shortcut: what a file is, its content
// says.
type Fingerprint struct {
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // nanoseconds
	Change int64  `json:"ctime"` // nanoseconds; a rename into the folder moves it
}

func fingerprint(info fs.FileInfo) Fingerprint {
	var f Fingerprint
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		f.Inode = st.Ino
	}
	if !info.Mode().IsRegular() {
		return f // using a folder or a pipe moves its times, and does not make it another one
	}
	f.Size, f.MTime = info.Size(), info.ModTime().UnixNano()
	if ok {
		f.Change = st.Ctim.Nano()
	}
	return f
}

// Seen is a file of handled names, one JSON line each, the last line of a name counting. Losing it costs a reading of
// every file that is still there; the inbox then finds them to be duplicates.
type Seen struct {
	path  string
	mu    sync.Mutex
	file  *os.File
	lines int // that Load found
}

// smallSeen is how many lines are not worth shortening the file for.
const smallSeen = 1000

type seenLine struct {
	Name  string      `json:"name,omitempty"`
	Raw   []byte      `json:"raw,omitempty"` // instead of a name that is no UTF-8, which JSON would change
	Print Fingerprint `json:"print"`
}

// OpenSeen opens or makes the file.
func OpenSeen(path string) (*Seen, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the list of handled files: %w", err)
	}
	s := &Seen{path: path, file: f}
	if err := s.endLine(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the list of handled files: %w", err), f.Close())
	}
	return s, nil
}

// endLine closes a line that was cut short, so that the next one is not spoilt with it.
func (s *Seen) endLine() error {
	info, err := s.file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := s.file.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = s.file.Write([]byte{'\n'})
	return err
}

// Load gives what is in the file; a line that was cut short is passed over.
func (s *Seen) Load() map[string]Fingerprint {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Fingerprint{}
	if _, err := s.file.Seek(0, 0); err != nil {
		return all
	}
	s.lines = 0
	lines := bufio.NewScanner(s.file)
	for lines.Scan() {
		s.lines++
		var l seenLine
		if json.Unmarshal(lines.Bytes(), &l) == nil {
			all[cmp.Or(l.Name, string(l.Raw))] = l.Print
		}
	}
	return all
}

// Save appends a name.
func (s *Seen) Save(name string, mark Fingerprint) error {
	line, err := encodeSeen(name, mark)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.file.Write(line)
	return err
}

// Keep makes a file that was loaded hold these names only, when that makes it much shorter. A crash leaves the old file
// or the new one.
func (s *Seen) Keep(all map[string]Fingerprint) error {
	if s.lines < 2*len(all)+smallSeen {
		return nil
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		line, err := encodeSeen(name, all[name])
		if err != nil {
			return err
		}
		b.Write(line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.path + ".new"
	if err := os.WriteFile(fresh, b.Bytes(), 0o600); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.path); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	old := s.file
	s.file = f
	return old.Close()
}

func encodeSeen(name string, mark Fingerprint) ([]byte, error) {
	l := seenLine{Name: name, Print: mark}
	if !utf8.ValidString(name) {
		l.Name, l.Raw = "", []byte(name)
	}
	b, err := json.Marshal(l)
	return append(b, '\n'), err
}

// Close closes the file.
func (s *Seen) Close() error { return errors.Join(s.file.Close()) }

// temporaryNames are those that uploaders and editors use until a file is whole, and files that are never data.
// Measured and read: testdata/temp_name_patterns.tsv.
var temporaryNames = regexp.MustCompile(`(?is)^(` +
	`\..+\.[a-z0-9]{6}` + // rsync
	`|\.in\..*|\.pureftpd-upload\..*|\.syncthing\..*|~syncthing~.*|\.goutputstream-.*|\.~tmp~|\.rsync-partial` +
	`|.*\.(filepart|part|partial|crdownload|download|tmp|temp|swp|swx)` +
	`|.*~|~\$.*|\.~lock\..*|#.*#|\.#.*|4913` +
	`|\.nfs[0-9a-f]+|\.fuse_hidden.*|\._.*|\.ds_store|thumbs\.db|desktop\.ini)$`)

func temporary(name string) bool { return temporaryNames.MatchString(name) }
