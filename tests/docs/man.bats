#!/usr/bin/env bats
# The manual page against the program: nothing missing, nothing that does not exist.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common

# The page without comments and without the escapes that keep a dash a dash.
page() {
	sed '/^\.\\"/d; s/\\-/-/g' "$man"
}

# Lines of a section.
section() { # NAME
	page | awk -v name="$1" '/^\.Sh / { on = substr($0, 5) == name; next } on'
}

# Options of a command's subsection, or of the part in front of the first one: "-t --type TARGET".
page_options() { # COMMAND or ""
	section COMMANDS | awk -v name="$1" '/^\.Ss / { current = substr($0, 5); next } current == name' |
		sed -n 's/^\.It Fl/Fl/p' | sed 's/Fl /-/g; s/ , / /; s/ Ar / /' | sort
}

# Rows of the n-th table of the columns: "NAME key * type".
page_columns() { # N
	section COLUMNS | awk -v n="$1" '/^\.Bl/ { table++ } table == n' |
		sed -n 's/^\.It \([A-Z0-9-]*\)\( \*\)\? Ta \([a-z0-9_]*\) Ta \([a-z]*\) Ta .*/\1 \3\2 \4/p'
}

@test "every option of every command has its place, and no other is there" {
	local common='["verbose", "help"]' shown

	shown='(if .letter then "-\(.letter) " else "" end) + "--\(.name)" + (if .argument then " \(.argument)" else "" end)'
	same "options of all commands" \
		"$(cli --argjson c "$common" "[.commands[].options[] | select(.name | IN(\$c[])) | $shown] | unique[]" | sort)" \
		"$(page_options "")"
	for command in $(cli '.commands[].name'); do
		same "options of $command" \
			"$(cli --arg n "$command" --argjson c "$common" \
				".commands[] | select(.name == \$n).options[] | select(.name | IN(\$c[]) | not) | $shown" | sort)" \
			"$(page_options "$command")"
	done
}

@test "every command has a subsection and is in the synopsis, and no other is" {
	local commands

	commands=$(cli '.commands[].name')
	same commands "$commands" "$(section COMMANDS | sed -n 's/^\.Ss //p')"
	same synopsis "$commands" "$(section SYNOPSIS | sed -n 's/^\.Cm \([a-z-]*\).*/\1/p')"
}

@test "no option is spoken of that does not exist" {
	local known letters

	known=$(cli '[.commands[].options[].name, "version"] | unique[]')
	letters=$(cli '[.commands[].options[].letter, "V"] | unique[] | select(.)')
	for name in $(page | grep -oE '(Fl -|--|\| -)[a-z][a-z-]*' | sed -E 's/^(Fl -|--|\| -)//'); do
		grep -qx -e "$name" <<<"$known" || { echo "no option --$name"; return 1; }
	done
	for name in $(page | grep -oE 'Fl [a-zA-Z]( |$)' | cut -c 4); do
		grep -qx -e "$name" <<<"$letters" || { echo "no option -$name"; return 1; }
	done
}

@test "the words of an option are all named" {
	local text

	text=$(page)
	for word in $(cli '[.commands[].options[].words // [] | .[]] | unique[]'); do
		grep -qw -e "$word" <<<"$text" || { echo "the word $word is not named"; return 1; }
	done
	same targets "$(cli '.commands[] | select(.name == "add").options[] | select(.name == "type").words[]')" \
		"$(section TARGETS | sed -n 's/^\.It Cm //p' | sed 's/ , /\n/g')"
	same modes "$(cli '.commands[].options[] | select(.name == "data-mode").words[]')" \
		"$(section "DATA MODES" | sed -n 's/^\.It Cm //p')"
}

@test "columns: all of them, in order, with key, type and the mark of the default ones" {
	local table=0 types

	for command in $(cli '.commands[] | select(.columns != []).name'); do
		table=$((table + 1))
		types=$(jq -c --arg n "$command" '.[$n].array | map_values(rtrimstr("?"))' tests/schema.json)
		same "columns of $command" \
			"$(cli --arg n "$command" --argjson t "$types" '.commands[] | select(.name == $n).columns[] |
				"\(.name) \(.key)\(if .default then " *" else "" end) \($t[.key])"')" \
			"$(page_columns "$table")"
	done
	[ "$table" -eq 4 ]
}

@test "JSON: every key outside of the arrays, and the schema number" {
	local json

	json=$(section JSON)
	for key in $(jq -r '.[] | (.top, .ublkctl | keys[])' tests/schema.json | sort -u); do
		grep -q "^\.Va $key\>" <<<"$json" || { echo "no key $key"; return 1; }
	done
	grep -qx "The schema is $(jq .schema tests/schema.json)\." <<<"$json"
}

@test "exit statuses: numbers and meanings" {
	same "exit statuses" \
		"$(cli '.exit_statuses[] | if .status == 128 then .meaning | sub(": "; " ") else "\(.status) \(.meaning)" end')" \
		"$(section "EXIT STATUS" | awk '/^\.It / { item = $2; getline; print item, tolower(substr($0, 1, 1)) substr($0, 2) }' |
			sed 's/\.$//; s/ signal n$/ signal N/')"
}

@test "examples are understood" {
	section EXAMPLES | examples_parse 8
}

@test "files and environment of the design are named" {
	for word in /run/ublkctl/ID.json /dev/ublkbN /dev/ublkcN /dev/ublk-control; do
		section FILES | grep -qx -e "\.It Pa $word"
	done
	for word in NOTIFY_SOCKET UBLKCTL_SYSROOT; do
		section ENVIRONMENT | grep -qx -e "\.It Ev $word"
	done
}

@test "kernel versions are those of the feature list" {
	local name since

	# the program's own list in its source: name, first kernel, option; 6.5 is what everything needs
	while read -r name since; do
		[ "$(printf '%s\n' "$since" 6.5 | sort -V | tail -n 1)" != 6.5 ] || continue
		grep -q "^\.It $name Ta .* Ta Linux $since\$" "$man" ||
			{ echo "$name, Linux $since: not in the table of NOTES"; return 1; }
	done < <(sed -n 's/.*FEATURE(\([A-Z_]*\), "\([0-9.]*\)", "[^"].*/\1 \2/p' cli/abi/feature.c)
	grep -q 'UBLK_F_BATCH_IO Ta add .*batch' "$man"
}

@test "the page formats without a warning" {
	run --separate-stderr env LC_ALL=C.UTF-8 man --warnings -l -E UTF-8 "$man"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
}

@test "the page has nothing that mandoc's lint would change" {
	run mandoc -Tlint -W style "$man"
	run ! grep -v '^$\|outdated mandoc.db\|referenced manual not found' <<<"$output"
}
