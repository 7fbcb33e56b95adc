package configs

import (
	"path"
	"regexp"
	"strings"
)

// imageName is a reference as container engines read it: registry, path, tag, digest.
var imageName = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*` +
	`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`)

// checkContainer looks at what the language's specification can't say of a container's settings.
func (c *checker) checkContainer(n *node) {
	if image := n.get("image"); image != nil && image.kind == scalarNode {
		switch {
		case !imageName.MatchString(image.text):
			c.at(image, "E_IMAGE", shortened(image.text)+" is no name of an image", "[registry/]name[:tag][@sha256:<64 digits>]", "")
		case !strings.Contains(image.text, "@sha256:"):
			c.warn(image.line, image.col, "E_IMAGE_TAG", "the image "+shortened(image.text)+" may be another one tomorrow: its tag can be moved", "a digest, name@sha256:…",
				"docker image inspect --format '{{index .RepoDigests 0}}' "+shortened(image.text)+" prints it")
		}
	}
	if dir := n.get("workdir"); dir != nil && dir.kind == scalarNode && (!path.IsAbs(dir.text) || strings.ContainsRune(dir.text, 0)) {
		c.at(dir, "E_PATH", "the workdir "+shortened(dir.text)+" is no absolute path", "a path inside the container, as /apollo/out", "")
	}
}
