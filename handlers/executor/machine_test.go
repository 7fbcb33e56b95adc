package executor

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestReadMachine(t *testing.T) {
	m := ReadMachine(filepath.Join(t.TempDir(), "not", "there", "yet"))
	if m.Cores <= 0 || m.Cores > float64(runtime.NumCPU()) || m.Memory < 64<<20 || m.Disk <= 0 {
		t.Errorf("got %+v", m)
	}
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	if m := ReadMachine("/"); m.Cores > 1 {
		t.Errorf("GOMAXPROCS is 1, and there are %v cores", m.Cores)
	}
}

func TestAMachineIsBoundByEveryGroupAbove(t *testing.T) {
	mount := t.TempDir()
	own := filepath.Join(mount, "slice", "service")
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"slice/cpu.max": "150000 100000\n", "slice/memory.max": "max\n",
		"slice/service/cpu.max": "max 100000\n", "slice/service/memory.max": "1073741824\n",
	} {
		if err := os.WriteFile(filepath.Join(mount, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := Machine{Cores: 8, Memory: 16 << 30}
	m.bound(own, mount)
	if (m != Machine{Cores: 1.5, Memory: 1 << 30}) {
		t.Errorf("got %+v", m)
	}
	small := Machine{Cores: 1, Memory: 1 << 29}
	small.bound(own, mount)
	if (small != Machine{Cores: 1, Memory: 1 << 29}) {
		t.Errorf("a limit above the machine counts: %+v", small)
	}
}

func TestFindGroup(t *testing.T) {
	const hybrid = "25 1 0:23 / / rw - ext4 /dev/vda rw\n40 25 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	for _, test := range []struct{ group, mounts, dir, mount string }{
		{"0::/system.slice/apollo.service\n", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup/system.slice/apollo.service", "/sys/fs/cgroup"},
		{"4:memory:/x\n0::/\n", hybrid, "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"},
		{"0::/docker/a/b\n", "30 25 0:26 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "/sys/fs/cgroup/b", "/sys/fs/cgroup"},
		{"0::/docker/b\n", "30 25 0:26 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "", ""},
		{"0::/docker\n", "30 25 0:26 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "", ""},
		{"0::/a\n", `30 25 0:26 / /my\040groups rw - cgroup2 none rw` + "\n", "/my groups/a", "/my groups"},
		{"0::/../outside\n", hybrid, "", ""},
		{"4:memory:/x\n", hybrid, "", ""},
		{"0::/a\n", "25 1 0:23 / / rw - ext4 /dev/vda rw\n", "", ""},
		{"", "", "", ""},
	} {
		dir, mount, ok := findGroup(test.group, test.mounts)
		if dir != test.dir || mount != test.mount || ok != (test.dir != "") {
			t.Errorf("%q: %q, %q, %v", test.group, dir, mount, ok)
		}
	}
}
