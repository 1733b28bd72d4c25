#!/usr/bin/env bats
# The JSON of recorded trees against tests/schema.json; that of a real driver is in tests/dev/schema.bats.
#
# shellcheck disable=SC2154,SC2016 # set by bats and common.bash; expanded elsewhere

load common
load ../schema

@test "list --json has the pinned keys and types, whatever the device is" {
	for name in mixed idle; do
		tree "$name"
		json | fits list
		rm -r "$UBLKCTL_SYSROOT"
	done
	tree mixed
	json | jq -e '.devices | length == 4'
	# the check is one
	json | jq '.devices[3].size = "3221225472"' >"$BATS_TEST_TMPDIR/wrong"
	run ! fits list <"$BATS_TEST_TMPDIR/wrong"
	json | jq 'del(.devices[3].created)' >"$BATS_TEST_TMPDIR/wrong"
	run ! fits list <"$BATS_TEST_TMPDIR/wrong"
	json | jq '.devices[3].extra = 1' >"$BATS_TEST_TMPDIR/wrong"
	run ! fits list <"$BATS_TEST_TMPDIR/wrong"
}

@test "the keys of both are the columns' keys, in their order" {
	for command in list stat bench feature; do
		[ "$(ublkctl --dump-cli | jq -c --arg n "$command" '[.commands[] | select(.name == $n).columns[].key]')" = \
			"$(jq -c --arg n "$command" '.[$n].array | keys_unsorted' "$golden")" ]
	done
	tree mixed
	[ "$(json | jq -c '.devices[0] | keys_unsorted')" = "$(jq -c '.list.array | keys_unsorted' "$golden")" ]
}

@test "keys are lower case with underscores" {
	jq -e '[.list, .stat, .feature | (.top, .ublkctl, .array | keys[])] | all(test("^[a-z]+(_[a-z0-9]+)*$"))' "$golden"
}

@test "the JSON is one document that ends with a newline" {
	tree mixed
	ublkctl list --json 2>/dev/null >"$BATS_TEST_TMPDIR/out"
	[ "$(jq -s length "$BATS_TEST_TMPDIR/out")" -eq 1 ]
	[ "$(tail -c 2 "$BATS_TEST_TMPDIR/out")" = "}" ]
	[ -z "$(tail -c 1 "$BATS_TEST_TMPDIR/out")" ]
}

@test "table options do not change the JSON" {
	tree mixed
	for words in "-o ID" "--raw" --noheadings --bytes "-o +FLAGS --raw --bytes"; do
		# shellcheck disable=SC2086 # words
		[ "$(json $words)" = "$(json)" ]
	done
}
