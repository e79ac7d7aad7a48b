"""The operator's command line: what `manage.py queen` does.

main.py       arguments, and which verb they mean; errors and exit codes
client.py     one request to a broker
printing.py   tables, JSON, colours
queues.py, messages.py, groups.py, letters.py, state.py, system.py   the verbs, by noun

Needs the standard library alone. Used by commands/queen.py.
"""
