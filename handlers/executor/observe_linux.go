package executor

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// observer hears of the paths that an attempt uses. It reports and does not hold: a thread could change a path between
// its reading here and its use. What holds is Landlock.
type observer struct {
	fd       int // where the kernel asks; -1 is an attempt that nobody observes
	how      confinement
	free     bool    // the network is declared
	abstract bool    // the kernel keeps abstract sockets apart
	grants   []grant // of the attempt
	buf      []byte
	n        notification
	heard    []heard // of the call that is being answered
	found    accesses
}

// heard is an access that the present call is, if it is still waited for.
type heard struct {
	access events.Pair
	soft   bool // not a reason by itself that the attempt fails
}

// systemReads and systemPrograms are the paths of the machine that were looked at and are allowed to every attempt.
var systemReads, systemPrograms pathSet

// serve answers one call.
func (o *observer) serve(buf []byte) {
	if o.n.receive(o.fd) != nil {
		return // whoever called has been killed
	}
	o.buf, o.heard = buf, o.heard[:0]
	refused := o.judge()
	if o.n.answer(o.fd, refused) != nil {
		return
	}
	for _, h := range o.heard {
		o.found.add(h.access, h.soft)
	}
}

// judge notes what the call is and gives the error with which it is refused here; 0 lets the kernel go on.
func (o *observer) judge() unix.Errno {
	call := callOf[uint32(o.n.nr)] //nolint:gosec // a call's number is not negative
	switch {
	case call == nil:
	case call.use == asks:
		o.hear("connect", socketName(o.n.args[0], o.n.args[1]), true)
		return unix.EACCES
	case call.use == connects:
		return o.connect()
	case call.use == executes:
		o.execute(call.paths[0])
	case call.use == opens:
		o.open(call.paths[0], o.n.args[call.flags])
	case call.use == opensHow:
		if how, ok := o.memory(o.n.args[call.flags], 8); ok {
			o.open(call.paths[0], binary.NativeEndian.Uint64(how))
		}
	default:
		o.change(call, call.paths[0])
		if call.two {
			o.change(call, call.paths[1])
		}
	}
	return 0
}

func (o *observer) hear(kind, value string, soft bool) {
	o.heard = append(o.heard, heard{events.Pair{Name: kind, Value: value}, soft})
}

// open judges a file that is opened.
func (o *observer) open(at pathArgument, flags uint64) {
	if flags&unix.O_PATH != 0 {
		return // as good as stat
	}
	text, ok := o.text(o.n.args[at.path])
	if !ok || len(text) == 0 {
		return
	}
	writes := flags&unix.O_ACCMODE != unix.O_RDONLY || flags&(unix.O_TRUNC|unix.O_TMPFILE&^unix.O_DIRECTORY) != 0
	plain := !writes && flags&unix.O_CREAT == 0
	if plain && systemReads.has(text) {
		return
	}
	f := o.find(at, string(text), flags&unix.O_NOFOLLOW == 0)
	switch {
	case f.exists && flags&unix.O_CREAT != 0 && flags&unix.O_EXCL != 0:
	case f.exists && writes:
		o.use("write", f.path)
	case f.exists && f.dir:
		o.use("list", f.path)
	case f.exists:
		if o.use("read", f.path) && plain && f.lasting {
			systemReads.add(f.name)
		}
	case flags&unix.O_CREAT != 0:
		o.make(at, string(text))
	}
}

// change judges a name that is made, replaced or removed.
func (o *observer) change(call *trappedCall, at pathArgument) {
	text, ok := o.text(o.n.args[at.path])
	if !ok || len(text) == 0 {
		return
	}
	f := o.find(at, string(text), call.use == creates)
	switch {
	case f.exists && call.use != makes:
		o.use("write", f.path)
	case !f.exists && call.use != changes:
		o.make(at, string(text))
	}
}

// make judges a name that is not there, by the directory that it would be in.
func (o *observer) make(at pathArgument, text string) {
	dir, name := path.Split(strings.TrimRight(text, "/"))
	if dir == "" {
		dir = "."
	}
	if f := o.find(at, dir, true); f.exists && f.path != "" {
		o.use("write", path.Join(f.path, name))
	}
}

// execute judges a program, and the one that its first line names.
func (o *observer) execute(at pathArgument) {
	text, ok := o.text(o.n.args[at.path])
	if !ok || systemPrograms.has(text) {
		return
	}
	f := o.find(at, string(text), true)
	if !f.exists || f.dir || !o.use("execute", f.path) || f.path == "" {
		return
	}
	allowed := true
	if name := interpreterOf(f.path); name != "" {
		if i := o.find(pathArgument{here, 0}, name, true); i.exists {
			allowed = o.use("execute", i.path)
		}
	}
	if allowed && f.lasting {
		systemPrograms.add(f.name)
	}
}

// interpreterOf reads a script's first line; empty is none.
func interpreterOf(file string) string {
	var buf [256]byte
	line, script := bytes.CutPrefix(readProc(file, buf[:]), []byte("#!"))
	if !script {
		return ""
	}
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	name, _, _ := bytes.Cut(bytes.TrimLeft(line, " \t"), []byte{' '})
	return strings.TrimSpace(string(name))
}

// use notes what is not declared, and reports whether it is.
func (o *observer) use(kind, name string) bool {
	writes := kind == "write"
	if name == "" || allows(systemGrants(), name, writes) || allows(o.grants, name, writes) || writes && ofProcess(name) {
		return true
	}
	if !tolerated(name) {
		o.hear(kind, name, !o.how.enforce)
	}
	return false
}

func allows(list []grant, name string, writes bool) bool {
	for i := range list {
		if (list[i].writes || !writes) && list[i].holds(name) {
			return true
		}
	}
	return false
}

// ofProcess reports whether a path belongs to a process in /proc. A process may say something of itself to the kernel;
// Landlock refuses it, and programs do not mind.
func ofProcess(name string) bool {
	rest, ok := strings.CutPrefix(name, "/proc/")
	return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

// file is what a path leads to.
type file struct {
	name    string // as the process wrote it
	path    string // without symbolic links; empty when it is no file of the tree
	exists  bool
	dir     bool
	lasting bool // a path of the machine that means the same to every process
}

// find follows a path as the calling thread does.
func (o *observer) find(at pathArgument, text string, follow bool) file {
	f := file{name: text}
	fd, err := unix.Open(o.reach(at, text), flagsOf(follow), 0)
	if err != nil {
		return f
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return f
	}
	f.exists, f.dir, f.path = true, st.Mode&unix.S_IFMT == unix.S_IFDIR, pathOf(fd)
	f.lasting = strings.HasPrefix(text, "/") && allows(systemGrants(), f.path, false) && f.path != "" &&
		!strings.HasPrefix(text, "/proc/") && !strings.HasPrefix(text, "/dev/") && !strings.HasPrefix(f.path, "/proc/") && !strings.HasPrefix(f.path, "/dev/")
	return f
}

func flagsOf(follow bool) int {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	return flags
}

// reach gives a path by which the supervisor comes where the thread's own path leads.
func (o *observer) reach(at pathArgument, text string) string {
	pid := strconv.FormatUint(uint64(o.n.pid), 10)
	if !strings.HasPrefix(text, "/") {
		base := "/proc/" + pid + "/cwd/"
		if at.dir != here {
			if fd := int32(o.n.args[at.dir]); fd != unix.AT_FDCWD { //nolint:gosec // the kernel looks at no more
				base = "/proc/" + pid + "/fd/" + strconv.Itoa(int(fd)) + "/"
			}
		}
		if text == "" { // the descriptor itself
			return strings.TrimSuffix(base, "/")
		}
		return base + text
	}
	for _, own := range []struct{ prefix, instead string }{
		{"/proc/self", "/proc/" + pid}, {"/proc/thread-self", "/proc/" + pid}, {"/dev/fd", "/proc/" + pid + "/fd"},
		{"/dev/stdin", "/proc/" + pid + "/fd/0"}, {"/dev/stdout", "/proc/" + pid + "/fd/1"}, {"/dev/stderr", "/proc/" + pid + "/fd/2"},
	} {
		if rest, ok := strings.CutPrefix(text, own.prefix); ok && (rest == "" || rest[0] == '/') {
			return own.instead + rest
		}
	}
	return text
}

// connect judges where a socket is connected to.
func (o *observer) connect() unix.Errno {
	address, ok := o.memory(o.n.args[1], int(min(o.n.args[2], 110)))
	if !ok || len(address) < 3 {
		return 0
	}
	family, rest := binary.NativeEndian.Uint16(address), address[2:]
	sealed := o.how.none && o.how.enforce
	switch {
	case family == unix.AF_UNIX && rest[0] == 0:
		if sealed && o.abstract {
			return 0 // the kernel knows whose it is
		}
		o.hear("connect", "@"+strings.ToValidUTF8(string(bytes.TrimRight(rest[1:], "\x00")), "?"), !sealed)
	case family == unix.AF_UNIX:
		name, _, _ := bytes.Cut(rest, []byte{0})
		f := o.find(pathArgument{here, 1}, string(name), true)
		if !f.exists || allows(o.grants, f.path, true) {
			return 0
		}
		if !tolerated(f.path) {
			o.hear("connect", f.path, !sealed)
		}
	default:
		if to := addressOf(family, rest); to != "" && !o.free {
			o.hear("connect", to, true)
		}
		return 0
	}
	if sealed {
		return unix.EACCES
	}
	return 0
}

// addressOf gives the text of an internet address that leads somewhere.
func addressOf(family uint16, rest []byte) string {
	var ip netip.Addr
	switch {
	case family == unix.AF_INET && len(rest) >= 6:
		ip = netip.AddrFrom4([4]byte(rest[2:6]))
	case family == unix.AF_INET6 && len(rest) >= 22:
		ip = netip.AddrFrom16([16]byte(rest[6:22]))
	default:
		return ""
	}
	port := binary.BigEndian.Uint16(rest)
	if port == 0 {
		return "" // asks the kernel for a route, as resolvers do
	}
	return netip.AddrPortFrom(ip, port).String()
}

// socketName says what kind of socket was asked for.
func socketName(family, kind uint64) string {
	if f := uint32(family); f == unix.AF_INET || f == unix.AF_INET6 { //nolint:gosec // the kernel looks at no more
		switch kind & 0xf {
		case unix.SOCK_STREAM:
			return "tcp"
		case unix.SOCK_DGRAM:
			return "udp"
		}
	}
	return "socket family " + strconv.Itoa(int(uint32(family))) //nolint:gosec // as above
}

// text reads a path of the calling thread. It is short mostly, so that the first look is.
func (o *observer) text(at uint64) ([]byte, bool) {
	for _, most := range []int{256, unix.PathMax} {
		b, ok := o.memory(at, most)
		if !ok {
			return nil, false
		}
		if text, _, ended := bytes.Cut(b, []byte{0}); ended {
			return text, true
		}
	}
	return nil, false
}

// memory reads up to n bytes of the calling thread's memory into the buffer; what lies behind the page's end may not be
// there.
func (o *observer) memory(at uint64, n int) ([]byte, bool) {
	const page = 4096
	if at == 0 || n <= 0 {
		return nil, false
	}
	first := min(n, page-int(at%page))
	local := [1]unix.Iovec{{Base: &o.buf[0]}}
	local[0].SetLen(n)
	remote := [2]unix.RemoteIovec{{Base: uintptr(at), Len: first}, {Base: uintptr(at) + uintptr(first), Len: n - first}}
	pieces := 2
	if first == n {
		pieces = 1
	}
	got, err := unix.ProcessVMReadv(int(o.n.pid), local[:], remote[:pieces], 0)
	if err != nil || got <= 0 {
		return nil, false
	}
	return o.buf[:got], true
}

// pathSet remembers some paths.
type pathSet struct {
	mu   sync.RWMutex
	kept map[string]struct{}
}

// maxKnownPaths bounds a pathSet; beyond it what is new is looked at each time.
const maxKnownPaths = 8192

func (s *pathSet) has(text []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.kept[string(text)]
	return ok
}

func (s *pathSet) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]struct{}{}
	}
	if len(s.kept) < maxKnownPaths {
		s.kept[name] = struct{}{}
	}
}

// appendFD writes a descriptor's path without an allocation.
func appendFD(b []byte, prefix string, fd int) []byte {
	return strconv.AppendInt(append(b, prefix...), int64(fd), 10)
}
