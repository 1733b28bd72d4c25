# The JSON of all commands against schema.json, which pins keys and types. A key can be added there; what is
# there stays. "?" behind a type: null where nothing is known.
# shellcheck shell=bash disable=SC2016 # expanded elsewhere

golden=tests/schema.json

# jq: true if the document has exactly the keys and types that the golden file has for a command.
check='
	def kind: if type == "number" then (if floor == . then "integer" else "number" end) else type end;
	def fits($want): . == ($want | rtrimstr("?")) or (. == "null" and ($want | endswith("?"))) or
		(. == "integer" and ($want | startswith("number")));
	def object_fits($want): (keys == ($want | keys)) and
		(. as $o | all($want | keys[]; . as $k | $o[$k] | kind | fits($want[$k])));
	$golden[0] as $g | $g[$command] as $want |
	object_fits($want.top) and (.ublkctl | object_fits($want.ublkctl)) and
	.ublkctl.schema == $g.schema and .ublkctl.version == $version and
	all(.[$want.top | keys[] | select($want.top[.] == "array")][]; object_fits($want.array)) and
	(if $want.device then .device | object_fits($g.list.array + $want.device) else true end)'

fits() { # COMMAND, JSON on stdin
	jq -e --slurpfile golden "$golden" --arg command "$1" \
		--arg version "$(ublkctl --version | sed -n '1s/^ublkctl //p')" "$check"
}
