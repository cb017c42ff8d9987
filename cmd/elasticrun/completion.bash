# bash completion for elasticrun; bash 4 or later, and nothing else.

_elasticrun() {
	local program=${COMP_WORDS[0]/#\~\//"$HOME/"} words=() reply=() line i word joins=

	# bash has split the line at = and : too.
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ ${#words[@]} -gt 0 && ($joins || $word == [=:]*) ]]; then
			words[${#words[@]} - 1]+=$word
		else
			words+=("$word")
		fi
		joins=
		[[ $word != *[=:] ]] || joins=1
	done

	while IFS= read -r line; do
		reply+=("$line")
	done < <("$program" __completeNoDesc "${words[@]}" 2>/dev/null)
	[[ ${#reply[@]} -gt 0 ]] || return 0

	# The last line says how to go on: 0 by files, 16 by folders.
	case ${reply[-1]} in
	:0) compopt -o default ;;
	:16) compopt -o dirnames ;;
	esac
	unset 'reply[-1]'

	COMPREPLY=()
	for word in "${reply[@]}"; do
		[[ $word == -* ]] || printf -v word %q "$word"
		COMPREPLY+=("$word")
	done
}

complete -F _elasticrun elasticrun
