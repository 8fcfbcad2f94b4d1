# SPDX-License-Identifier: Apache-2.0
"""The cases that make_template_cases.py records: small templates, and conversations for the chat templates."""

VARIABLES = {
    "n": 7, "neg": -7, "f": 2.5, "zero": 0, "big": 9007199254740993, "t": True, "nothing": None, "empty": "",
    "s": "Hello, World", "pad": "  \t padded \n ", "u": "naïve café 🎉 日本語", "quote": "it's \"q\" \\ \n\t\x01\u00a0",
    "xs": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"], "nested": [[1, 2], [3, [4, 5]]], "none_list": [],
    "d": {"b": 1, "a": {"x": [1, 2.0, None, True]}, "items": "shadowed", "Z": "z"},
    "users": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25, "ok": True}, {"name": "Cy", "age": 30}],
    "csv": "a,b,,c", "html": "<b>&\"'</b>", "lines": "one\ntwo\n\nfour",
}

_INLINE = """
n + 1|n - 10|n * 3|n / 2|n // 2|neg // 2|n % 3|neg % 3|n % -3|neg // -2|n ** 2|2 ** -1|2 ** 0.5|f * 2|f // 1|-f % 1
1 / 0|1 // 0|1 % 0|1.0 // 0|0 ** -1|7 / 7|1e3|1.5e-7|1e16|1e15|123456789012345.678|0.1 + 0.2|1e22|5e-324|-0.0|1_000|0x1f|0b101|0o17
2.0|100.0|1e5|1.0e-4|0.00001|3.14159|true + 1|t + t|'a' * 3|3 * 'ab'|'a' * -1|[1] * 2|(1,) * 2|[1] + [2]|(1,) + (2, 3)
'a' + 1|1 + 'a'|none + 1|xs + 1|'a' + 'b'|'a' ~ 1 ~ none ~ 2.0 ~ true|undef ~ 'x'|1 ~ [1, 'a']|-n|+n|- -n|-'a'|+t|-t|not n|not zero|not not n
1 < 2|1 < 2 < 3|3 > 2 > 2|1 == 1.0|1 == true|'a' == 'a'|'a' < 'b'|'B' < 'a'|[1, 2] < [1, 3]|1 < 'a'|none < 1|none == none|undef == undef|undef == none
[1] == [1.0]|(1,) == [1]|d == d|{'a': 1} == {'a': 1.0}|xs != [3, 1, 2]|1 <= 1|2 >= 3|'a' in 'abc'|'' in 'abc'|'x' not in 'abc'|1 in xs|9 in xs
'b' in d|'q' in d|1 in 'abc'|none in xs|'a' in undef|1 in n|n and s|zero and s|zero or s|'' or none|n or undef.x|undef and undef.x
'yes' if n else 'no'|'yes' if zero else 'no'|'yes' if zero|1 if zero else 2 if zero else 3|n if n > 5 and t else 0
s[0]|s[-1]|s[99]|s[1:4]|s[::-1]|s[:-2]|s[-3:]|s[::2]|s[10:2:-2]|s[5:1]|u[0]|u[2]|u[-1]|u[6:12]|u[::-1]|u|length|xs[0]|xs[-1]|xs[5]
xs[1:]|xs[::-1]|xs[-1::-1]|xs[5:0:-2]|xs[::0]|xs['a']|xs[1.5]|nested[1][1][0]|(1, 2, 3)[1:]|d['b']|d['nope']|d.b|d.a.x[1]|d.nope|d.nope.x|d['a']['x']
d.items|length|nothing.x|nothing['x']|n.x|s.nope|undef|undef.x|undef['x']|undef[0]|undef[1:]|undef()|nothing()|d[[1]]|none[1:]|n[0]|xs.0
[]|[1]|[1, 'a', none, true, 2.0]|()|(1,)|(1, 2)|{}|{'a': 1}|{'a': {'b': [1]}, 2: 'x', none: 1, true: 2}|{'a': 1, 'a': 2}|{[1]: 2}|[undef]|d
quote|[quote]|['it\\'s']|['say "x"']|["both ' and \\""]|[u]|['\\x00\\x7f\\u200b\\U0001F389\\xad']|'\\x41\\u00e9\\n\\t\\\\ \\q \\101'|"a" 'b' "c"|'\\''|"\\""
none|true|false|None|True|False|[None, True]|nothing|t|f|n|big|big + 0.0|9223372036854775807
s|upper|s|lower|s|title|'hello-world (foo) [bar] x_y o\\'neil'|title|s|capitalize|'éCOLE ÀB'|capitalize|'straße ŒUVRE'|upper|'ΑΣ ΣΑΣ'|lower|pad|trim|'[' ~ pad|trim ~ ']'|'xxaxx'|trim('x')
s|length|xs|length|d|length|undef|length|n|length|none|length|s|count|s|first|s|last|xs|first|xs|last|none_list|first|none_list|last|u|first|d|first|n|first
s|reverse|xs|reverse|list|xs|reverse|u|reverse|d|list|s|list|undef|list|none|list|xs|list|d|items|list|undef|items|list|xs|items|list|none|items
xs|join|xs|join(', ')|words|join('-')|users|join(',', attribute='name')|undef|join|'abc'|join('.')|[1, none, 'x', true]|join(' ')|n|join|xs|join(d=';')|xs|join(1)
s|replace('l', 'L')|s|replace('l', 'L', 1)|s|replace('', '-')|s|replace('', '-', 2)|'aaa'|replace('aa', 'b')|n|replace('7', 'x')|s|replace('zz', 'y')|s|replace('l')
undef|default('x')|empty|default('x')|empty|default('x', true)|none|default('x')|none|d('x', true)|n|default('x')|undef|default|undef.x|default('x')|d.nope|default(d.b)|undef|default(boolean=true, default_value=1)
'42'|int|'4.9'|int|'x'|int|'x'|int(5)|3.99|int|-3.99|int|' 12 '|int|'0x1f'|int(0, 16)|'ff'|int(base=16)|true|int|none|int|'1_000'|int|'--1'|int|'+5'|int|xs|int|undef|int|'1e3'|int
'3.5'|float|'x'|float|'x'|float(1.5)|n|float|'inf'|float|'-Infinity'|float|'nan'|float|'1e400'|float|none|float|'1_0.5'|float|'.5'|float|'5.'|float|''|float
n|string|f|string|d|string|none|string|undef|string|xs|string|s|string|neg|abs|-2.5|abs|s|abs|true|abs|f|round|2.5|round|3.5|round|2.675|round(2)|1.25|round(1)|42.55|round(1, 'floor')
42.51|round(0, 'ceil')|n|round|n|round(2, 'floor')|s|round|-2.5|round|1e300|round(2)|2.5|round|int|7.999|round(2)|42|round(1, 'nope')
d|tojson|quote|tojson|u|tojson|none|tojson|true|tojson|1.0|tojson|1e100|tojson|xs|tojson|()|tojson|(1, 2)|tojson|{}|tojson|[]|tojson|undef|tojson|html|tojson|d|tojson(indent=2)|d|tojson(indent=none)|[]|tojson(indent=2)|{'a': [], 'b': {}}|tojson(indent=4)
d|tojson(sort_keys=true)|u|tojson(ensure_ascii=true)|d|tojson(separators=(',', ':'))|d|tojson(indent=1, separators=(',', ' : '))|{1: 2, none: 3, true: 4, 1.5: 5}|tojson|{(1, 2): 3}|tojson|d|tojson(indent=0)|xs|tojson(indent='--')|'\\x7f\\x1f</a>'|tojson|'\\U0001F389'|tojson(ensure_ascii=true)
namespace(a=1)|tojson|range(3)|tojson|d|tojson|safe|html|safe|html|lines|indent|lines|indent(2)|lines|indent(2, true)|lines|indent(2, true, true)|lines|indent('> ')|lines|indent(width=1, blank=true)|''|indent(first=true)|'a\\n'|indent
xs|sort|words|sort|words|sort(case_sensitive=true)|words|sort(reverse=true)|users|sort(attribute='age')|map(attribute='name')|list|users|sort(attribute='age,name')|map(attribute='name')|list|users|sort(attribute='age', reverse=true)|map(attribute='name')|join(',')|[1, 'a']|sort|d|sort|nested|sort
words|unique|list|words|unique(case_sensitive=true)|list|[1, 1.0, true, 2]|unique|list|users|unique(attribute='age')|map(attribute='name')|list|nested|unique|list|d|dictsort|list|d|dictsort(by='value')|{'b': 1, 'A': 3, 'c': 2}|dictsort|{'b': 1, 'A': 3, 'c': 2}|dictsort(true)|{'b': 1, 'A': 3, 'c': 2}|dictsort(false, 'value')|{'b': 1, 'A': 3}|dictsort(reverse=true)
xs|min|xs|max|words|min|words|max|words|max(case_sensitive=true)|none_list|min|users|min(attribute='age')|users|max(attribute='age')|xs|sum|users|sum(attribute='age')|xs|sum(start=10)|[0.1, 0.2]|sum|words|sum|none_list|sum|nested|sum(start=[])
xs|map('string')|list|words|map('upper')|list|words|map('replace', 'a', 'X')|join(',')|users|map(attribute='name')|list|users|map(attribute='ok')|list|users|map(attribute='ok', default='no')|list|users|map(attribute='tags.0')|list|users|map(attribute='tags.0', default='-')|list|xs|map|list|nested|map('first')|list|xs|map('nope')|list|undef|map('upper')|list
users|selectattr('ok')|list|length|users|selectattr('age', 'equalto', 30)|map(attribute='name')|list|users|rejectattr('age', 'eq', 30)|map(attribute='name')|list|users|selectattr('ok', 'defined')|map(attribute='name')|list|users|rejectattr('ok')|map(attribute='name')|list|users|selectattr('age', '>', 26)|map(attribute='name')|list|users|selectattr('name', 'in', ['al', 'Cy'])|map(attribute='name')|join
xs|select('odd')|list|xs|reject('odd')|list|[0, 1, '', none, 'x']|select|list|[0, 1, '']|reject|list|xs|select('divisibleby', 3)|list|xs|select('gt', 1)|list|xs|select('nope')|list|none|select|list|undef|select|list|xs|select('odd')|length|xs|select('odd')|first|xs|select('gt', 5)|first|xs|map('abs')|last
'yes' if xs|select('gt', 5) else 'no'|xs|map('abs')|sort|xs|select|join|xs|map('abs')|tojson|'abc'|map('upper')|list|d|map('upper')|list|xs|first|string|words|map('length')|sum|words|map('first')|map('upper')|join
n is defined|undef is defined|undef is undefined|n is not defined|none is none|n is none|undef is none|s is string|n is string|d is mapping|xs is mapping|xs is sequence|s is sequence|d is sequence|n is sequence|undef is sequence|range(2) is sequence|d.keys() is sequence|xs is iterable|s is iterable|n is iterable|undef is iterable|none is iterable|d.values() is iterable
n is number|f is number|t is number|s is number|n is integer|t is integer|f is integer|f is float|n is float|t is boolean|n is boolean|t is true|n is true|zero is false|false is false|n is odd|n is even|f is odd|s is odd|n is divisibleby 7|n is divisibleby(2)|n is divisibleby 0|n is eq 7|n is equalto(7)|n is == 7|n is ne 7|n is lt 8|n is lessthan 8|n is gt 8|n is ge 7|n is le 6|n is greaterthan 1
n is in xs|3 is in xs|3 is not in xs|'a' is in 'abc'|n is in n|range is callable|n is callable|undef is callable|d.get is callable|d.items is callable|d.items is mapping|d.items is defined|d['items']|d['keys'] is defined|'abc' is lower|'ABC' is upper|'a1' is lower|'1' is lower|1 is lower|none is sameas none|1 is sameas 1.0|t is sameas true|'upper' is filter|'nope' is filter|'odd' is test|n is string or n is integer|not n is string|n is not string and t|n + 1 is odd|-1 is number|undef.x is defined|nothing.x is defined|d.a.nope is defined|d.nope.x is defined
s.startswith('He')|s.startswith(('x', 'H'))|s.startswith('l', 2)|s.startswith('')|s.endswith('ld')|s.endswith('l', 0, 4)|s.endswith(['d'])|s.startswith(1)|s.upper()|s.lower()|s.title()|'they\\'re x1y'.title()|s.capitalize()|pad.strip()|s.strip('Hd')|s.lstrip('He')|s.rstrip('dl')|s.strip('')|s.strip(none)|'\\u3000x\\u2003'.strip()|'[' ~ pad.lstrip() ~ ']'|'[' ~ pad.rstrip() ~ ']'
csv.split(',')|csv.split(',', 1)|csv.rsplit(',', 1)|csv.split(',', maxsplit=2)|csv.split(sep=',')|' a  b c '.split()|' a  b c '.split(none, 1)|' a  b c '.rsplit(none, 1)|' a  b c '.rsplit()|''.split()|''.split(',')|'a'.split('')|csv.rsplit(',')|csv.rsplit(',', 0)|csv.split(',', 0)|'aaa'.split('aa')|'aaa'.rsplit('aa')|lines.splitlines()|lines.splitlines(true)|'a\\r\\nb\\rc'.splitlines()|csv.split(',')[-1]|s.split('o')[0].rstrip('l').split('H')[-1]
s.replace('o', '0')|s.replace('o', '0', 1)|'aXbX'.replace('X', '')|'ab'.replace('', '-')|'éa'.replace('', '-', 2)|s.find('o')|s.find('zz')|s.find('o', 5)|s.rfind('o')|u.find('🎉')|u.rfind('é')|s.find('')|s.find('', 99)|s.index('W')|s.index('zz')|s.count('l')|s.count('')|'aaaa'.count('aa')|s.count('l', 4)|', '.join(words)|''.join(xs)|'-'.join('abc')|'-'.join([])|'a'.join(undef)|s.find('l', -5, -1)|u.find('語', 3)
'12'.isdigit()|'1a'.isdigit()|''.isdigit()|'ab'.isalpha()|'a1'.isalnum()|' '.isspace()|'ab'.islower()|'AB'.isupper()|'pre-x'.removeprefix('pre-')|'x.py'.removesuffix('.py')|'a=b=c'.partition('=')|'a=b=c'.rpartition('=')|'abc'.partition('=')|'abc'.rpartition('=')
d.get('b')|d.get('nope')|d.get('nope', 5)|d.keys()|list|d.values()|list|d.items()|list|{'a': 1}.items()|list|d.keys()|length|{'q': 2}.values()|sum|xs.index(1)|xs.index(9)|xs.count(1)|d.copy() == d|d.get()|{'a': 1}['a']|{'a': 1}.a|{1: 'x'}[1]|{1: 'x'}[true]|{1: 'x'}[1.0]
range(3)|list|range(1, 4)|list|range(5, 0, -2)|list|range(0)|list|range(3)|length|range(3)[1]|range(10)[2:5]|list|range(1, 2, 0)|range('a')|range(1.5)|range(99999)|length|range(100001)|range(3)|sum|3 in range(5)|dict(a=1, b=2)|dict({'a': 1}, b=2)|dict([('x', 1)])|dict()|dict(1)|namespace(a=1).a|namespace(a=1).b|namespace(a=1)|namespace({'q': 1}).q|strftime_now('%Y-%m-%d')|strftime_now('%d %b %Y, %H:%M:%S')|strftime_now('')|raise_exception('no ' ~ n)
1, 2|(1)|((1, 2), 3)|[1, 2,]|{'a': 1,}|s|upper|lower|s | trim | length|s[0]|lower|xs[0] + xs[1]|(xs|length) * 2|xs|length * 2|n + xs|length|-xs|length|-f|abs|2 ** 3 ** 2|-2 ** 2|not n == 7|n in xs or t|1 + 2 ~ 3 + 4|'a' ~ 'b' * 2|n % 4 * 2|'%s' % n|s == 'x' or 'y'|s is string and s|length > 3|[1, 2][0]|'abc'[1]|(1, 2).0|'a'.upper().lower()|[[1, 2], [3]][0][1]|{'a': [1, {'b': 2}]}['a'][1].b|1 if t else 2|length|words[0][0]|upper
undef + 1|undef < 1|undef * 2|undef in [1]|undef|upper|undef|first|undef|sum|undef == 1|undef != 1|not undef|undef or 1|undef is string|-undef|undef|replace('a', 'b')|undef|sort|undef|reverse|list|undef|trim|undef.x.y|undef|abs|undef|round|undef|min|undef|dictsort|[undef, 1]|join('-')|undef|tojson|default('x')
"""

_BLOCKS = [
    # Loops.
    "{% for x in xs %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d|items %}{{ k }}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for a, b in nested %}{{ a }}{% endfor %}", "{% for a, b in xs %}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in undef %}a{% else %}e{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in xs %}{% for y in words %}{{ loop.index }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% break %}{% else %}else{% endfor %}", "{% for x in xs %}{% continue %}{% else %}else{% endfor %}",
    "{% for x in xs %}{% if loop.first %}{% continue %}{% endif %}{% else %}else{% endfor %}", "{% for x in xs %}{% if loop.last %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% break %}", "{{ loop.index }}", "{{ loop is defined }}",
    "{% for x in xs[::-1] %}{{ x }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in words|sort %}{{ x }} {% endfor %}", "{% for x in xs|map('string') %}{{ x * 2 }}{% endfor %}",
    "{% for x in xs if loop.index %}{% endfor %}", "{% for x in (xs if t else []) %}{{ x }}{% endfor %}", "{% for loop in xs %}{% endfor %}",
    "{% set m = xs|map('string') %}{% for x in m %}{{ x }}{% endfor %}|{% for x in m %}{{ x }}{% endfor %}", "{% set m = xs|map('string') %}{{ m|first }}|{{ m|list }}",
    "{% for x in xs %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for u in users %}{{ u.name }}:{{ u['age'] }}{{ ' ok' if u.ok }};{% endfor %}",
    # Scopes and set.
    "{% set x = 1 %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x = 1 %}{% for i in xs %}{% set x = i %}{% endfor %}{{ x }}",
    "{% for i in xs %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 0 %}{% for i in xs %}{{ x }}{% set x = x + 1 %}{% endfor %}", "{% if t %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for i in xs %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns.b is defined }}",
    "{% set n.x = 1 %}", "{% set d.x = 1 %}", "{% set undef.x = 1 %}", "{% set x %}block {{ n }}{% endset %}[{{ x }}]", "{% set x | upper %}block {{ n }}{% endset %}[{{ x }}]",
    "{% set x | trim | replace('b', 'B') %} block {% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{% endset %}{{ y }}", "{% set ns = namespace(a=1) %}{% set ns.b %}text{% endset %}{{ ns.b }}",
    "{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", "{% set a, b = 1 %}", "{% set none = 1 %}", "{% set n = n + 1 %}{{ n }}", "{% for n in xs %}{{ n }}{% endfor %}{{ n }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with n = 1, m = n %}{{ n }}{{ m }}{% endwith %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter trim | replace('a', 'b') %} aaa {% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}",
    # Conditions.
    "{% if n %}a{% endif %}", "{% if zero %}a{% elif n %}b{% else %}c{% endif %}", "{% if zero %}a{% elif empty %}b{% else %}c{% endif %}", "{% if undef %}a{% else %}b{% endif %}", "{% if undef.x %}{% endif %}",
    "{% if none_list %}a{% else %}b{% endif %}", "{% if n == 7 and s is string and not zero %}y{% endif %}", "{% if 'a' in words or 'Apple' in words %}y{% endif %}", "{% if not(s.startswith('<') and s.endswith('>')) %}y{% endif %}",
    "{% if n > 5 %}{% if n > 6 %}x{% else %}y{% endif %}{% endif %}", "{% if (1, 2) %}y{% endif %}", "{% if 0.0 %}a{% else %}b{% endif %}", "{% if {} %}a{% else %}b{% endif %}",
    # Macros.
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(c=2) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ q }}{% endmacro %}{% set q = 1 %}{{ m() }}",
    "{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q }}", "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(4) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %} {{ a }} {% endmacro %}[{{ m(1)|trim }}]", "{% macro m() %}x{% endmacro %}{{ m() ~ m() }}{{ m()|length }}{{ m is callable }}{{ m() is string }}", "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% for i in xs %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(x) %}{% for i in x %}{{ i }}{% endfor %}{% endmacro %}{{ m([1, 2]) }}",
    "{% macro m(ns) %}{% set ns.x = 5 %}{% endmacro %}{% set q = namespace(x=1) %}{{ m(q) }}{{ q.x }}", "{% macro m(f) %}{{ f('z') }}{% endmacro %}{% macro g(x) %}<{{ x }}>{% endmacro %}{{ m(g) }}", "{% macro m(a, a2=1, b) %}{% endmacro %}",
    "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "{% set ns = namespace() %}{% macro m() %}{{ n }}{% endmacro %}{% set ns.f = m %}{{ ns.f() }}", "{% macro m(x='a' ~ 'b') %}{{ x }}{% endmacro %}{{ m() }}", "{% macro m(x) %}{{ raise_exception('bad ' ~ x) }}{% endmacro %}{{ m(3) }}",
    # White space.
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a  {% if t %}  b  {% endif %}  c", "a {%- if t %} b {%- endif %} c", "a {% if t -%} b {% endif -%} c", "a\n\n{%- if t -%}\n\nb\n\n{%- endif -%}\n\nc",
    "  {% if t %}x{% endif %}", "  {%+ if t %}x{% endif %}", "x\n  {%+ if t %}\nx{% endif +%}\ny", "{{ n }}\n{{ n }}\n", "  {{ n }}  \n  {{ n }}", "a {{- n -}} b", "a\n\n {{- n }} \n", "{# c #}\nx", "  {# c #}  \nx", "a {#- c -#} b", "a\n {#+ c +#}\nb", "x{# a\n b #}y",
    "{% raw %}{{ n }}{% if %}{% endraw %}", "a\n{% raw %}\n b\n{% endraw %}\nc", "a {%- raw -%} b {%- endraw -%} c", "{%raw%}{# {% {{ {%endraw%}", "\n\nx\n\n", "x\r\ny\rz\n", "x\n", "x", "", "\n", "{{ n }}}", "{ { n }}", "{{ '{{' }}", "{{ '}}' }}", "{% if '%}' %}a{% endif %}", "a{{\nn\n}}b",
    "{{ {'a': {'b': 1}} }}", "{{ {'a': 1}['a'] }}{{ {}}}", "{%- for x in xs %}\n{{ x }}\n{%- endfor %}\nend", "{% for x in xs %}\n  {{ x }}\n{% endfor %}\nend", "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}{{ y }}", "\t{% if t %}\n\tx\n\t{% endif %}\n", "a\n \u00a0{% if t %}b{% endif %}", "a{% if t %}\n\nb{% endif %}",
    "{%- macro m() -%}\n  x\n{%- endmacro -%}\n[{{ m() }}]", "{% generation %}a {{ n }}{% endgeneration %}", "x\n{% generation %}\nabc\n{% endgeneration %}\ny", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% for x in xs %}{%- generation -%} {{ x }} {%- endgeneration -%}{% endfor %}",
    "{{ n -}}   \n\n  {{- n }}", "{{-1}}", "{{ -1 }}", "{{- -1 }}", "{{+1}}", "a {{+1}}", "{% if t %}a{% endif %}\n{% if t %}b{% endif %}\n", "{%if t%}a{%endif%}", "{{n}}{{s}}", "line {# one #}\nline two", "a\n{#- x #}\nb", "{% if t %}\r\nx\r\n{% endif %}", "{# unclosed", "{{ n", "{% if t %}", "{% if t", "{{ n }", "{% endif %}", "{% raw %}x",
    # Not templates, or not for this interpreter.
    "{{ }}", "{{ n n }}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ 'abc }}", "{{ n | }}", "{{ n | nope }}", "{{ n is nope }}", "{{ n is }}", "{% nope %}", "{% for x xs %}{% endfor %}", "{% for in xs %}{% endfor %}", "{% if %}{% endif %}", "{% else %}", "{% if t %}{% else %}{% elif t %}{% endif %}", "{{ n.}}", "{{ n[ }}", "{{ n[] }}", "{{ {1} }}", "{{ {1:} }}", "{{ a b }}",
    "{{ n ? 1 : 2 }}", "{{ n && t }}", "{{ !n }}", "{{ 1 = 1 }}", "{% set x %}", "{% set 1 = 2 %}", "{% set x = %}", "{% macro %}{% endmacro %}", "{% macro m( %}{% endmacro %}", "{{ xs.append(1) }}", "{{ d.update({'a': 1}) }}", "{{ d.pop('b') }}", "{{ nosuch(1) }}", "{{ s.nosuch() }}", "{{ d.nosuch() }}", "{{ n is defined is defined }}", "{{ f(a=1, 2) }}", "{{ '\\ud800' }}", "{{ '\\x4' }}", "{{ 08 }}", "{% endfor %}", "{% for x in xs %}{% endif %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{{ d.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ xs.sort }}", "{{ d.pop is defined }}", "{{ xs.append is defined }}", "{{ loop.nope }}", "{% for x in xs %}{{ loop.nope }}{% endfor %}",
]


def _split(lines):
    """The cases of _INLINE: separated by bars, where a bar before a filter's name belongs to the case before it."""
    import jinja2.defaults

    filters = set(jinja2.defaults.DEFAULT_FILTERS) | {"nope"}
    cases = []
    for line in lines.strip().splitlines():
        joined = []
        for part in line.split("|"):
            name = "".join(takewhile_name(part.lstrip()))
            rest = part.lstrip()[len(name):].lstrip()
            # `min`, `d` and `list` alone are filters; `d.x` and `d == d` are expressions that begin with a variable.
            is_filter = name in filters and (not rest or rest[0] in "(~*+-=>)]}" or rest.split()[0] in ("else", "is"))
            if name == "d" and not rest.startswith("("):
                is_filter = False
            if joined and is_filter:
                joined[-1] += "|" + part
            else:
                joined.append(part)
        cases += joined
    return cases


def takewhile_name(text):
    for character in text:
        if not (character.isalnum() or character == "_"):
            return
        yield character


EXPRESSIONS = list(dict.fromkeys(["{{ " + case.replace("\\\\", "\\") + " }}" for case in _split(_INLINE)] + _BLOCKS))

# What Python renders and the interpreter refuses: a printed memory address (found by its look), and these.
REFUSED = {"{{ '%s' % n }}", "{{ n[] }}"}

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather", "description": " Get the weather <now> & later. ",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name, e.g. \"Zürich\""},
                "units": {"type": ["string", "null"], "enum": ["C", "F"], "default": None},
                "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7.5}},
            },
            "required": ["city"], "additionalProperties": False,
        },
    },
}
_FLAT_TOOL = {"name": "list_files", "description": "List files", "parameters": {"type": "object", "properties": {}}, "strict": True}


def _call(name, arguments, identity=None):
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": identity, **call} if identity else call


_SYSTEM = {"role": "system", "content": "You are terse."}
_HI = {"role": "user", "content": "Hi there"}
_USER_IMAGE = {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": " What is this? "}, {"type": "video"}]}

CONVERSATIONS = {
    "one user message": {"messages": [_HI]},
    "system and user": {"messages": [_SYSTEM, _HI]},
    "several turns": {"messages": [_SYSTEM, _HI, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "More\n\n"}, {"role": "assistant", "content": "\n\nSure."}]},
    "unicode": {"messages": [{"role": "system", "content": "Répondez à l'emoji 🎉"}, {"role": "user", "content": "日本語で\tお願いします\u3000\u200b"}, {"role": "assistant", "content": "はい 👩‍👩‍👧 \"quoted\" <b>&amp;</b>"}, {"role": "user", "content": " ok "}]},
    "reasoning kept apart": {"messages": [_HI, {"role": "assistant", "reasoning_content": "\nThe user greets.\n", "content": "Hello"}, {"role": "user", "content": "Again"}]},
    "reasoning in the last answer": {"messages": [_HI, {"role": "assistant", "reasoning_content": "\nThe user greets.\n", "content": "Hello"}]},
    "reasoning inside the text": {"messages": [_HI, {"role": "assistant", "content": "<think>\nhm, let me see\n</think>\n\nHello"}, {"role": "user", "content": "And?"}, {"role": "assistant", "content": "<think>x</think>Yes"}]},
    "thinking off": {"messages": [_HI], "extra": {"enable_thinking": False}},
    "thinking on": {"messages": [_SYSTEM, _HI], "extra": {"enable_thinking": True}},
    "tools": {"messages": [_SYSTEM, {"role": "user", "content": "Weather?"}], "tools": [_WEATHER]},
    "tools without system": {"messages": [{"role": "user", "content": "Weather?"}], "tools": [_WEATHER, _FLAT_TOOL]},
    "no tools in the list": {"messages": [_SYSTEM, _HI], "tools": []},
    "tool call": {"messages": [{"role": "user", "content": "Weather in Zürich?"}, {"role": "assistant", "content": "", "tool_calls": [_call("get_weather", {"city": "Zürich", "days": [1, 2], "deep": {"a": None, "b": [True, 1.5]}}, "c1")]}], "tools": [_WEATHER]},
    "tool call and response": {"messages": [_SYSTEM, {"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "Let me look.", "reasoning_content": "I need the tool.", "tool_calls": [_call("get_weather", {"city": "Bern", "n": 3, "f": 1.0, "on": True, "none": None})]}, {"role": "tool", "content": "{\"t\": 21.5}"}], "tools": [_WEATHER]},
    "two calls and two responses": {"messages": [{"role": "user", "content": "Both?"}, {"role": "assistant", "content": "Fine.\n", "tool_calls": [_call("get_weather", {"city": "A"}), _call("list_files", {})]}, {"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}, {"role": "assistant", "content": "A is <b>sunny</b>."}, {"role": "user", "content": "thanks"}], "tools": [_WEATHER, _FLAT_TOOL]},
    "arguments as text": {"messages": [_HI, {"role": "assistant", "content": "", "tool_calls": [_call("get_weather", "{\"city\": \"Bern\"}")]}], "tools": [_WEATHER]},
    "call without the function wrapper": {"messages": [_HI, {"role": "assistant", "content": "", "tool_calls": [{"name": "list_files", "arguments": {"path": "/tmp", "deep": True}}]}, {"role": "tool", "content": "a b"}]},
    "content is none": {"messages": [_HI, {"role": "assistant", "content": None, "tool_calls": [_call("list_files", {})]}, {"role": "tool", "content": "x"}]},
    "content is missing": {"messages": [_HI, {"role": "assistant", "tool_calls": [_call("list_files", {})]}, {"role": "tool", "content": "x"}]},
    "image and video": {"messages": [_SYSTEM, _USER_IMAGE]},
    "numbered images": {"messages": [_USER_IMAGE, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": [{"image_url": {"url": "x"}}, {"text": "and this?"}]}], "extra": {"add_vision_id": True}},
    "image in the system message": {"messages": [{"role": "system", "content": [{"type": "image"}]}, _HI]},
    "content of an odd type": {"messages": [{"role": "user", "content": 5}]},
    "content item of an odd type": {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
    "text items": {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    "system in the middle": {"messages": [_HI, _SYSTEM, _HI]},
    "unknown role": {"messages": [_HI, {"role": "critic", "content": "Bad."}]},
    "no messages": {"messages": []},
    "no user": {"messages": [_SYSTEM, {"role": "assistant", "content": "Hm."}]},
    "message without role": {"messages": [{"content": "x"}]},
    "empty texts": {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}]},
    "user sends a tool response": {"messages": [_HI, {"role": "assistant", "content": "call"}, {"role": "user", "content": "<tool_response>\nx\n</tool_response>"}, {"role": "assistant", "content": "<think>a</think>b"}]},
    "template text inside a message": {"messages": [{"role": "user", "content": "{{ n }} {% if %} <|im_end|>\n"}]},
    "long": {"messages": [{"role": role, "content": f"{role} says {i} " * 20} for i in range(20) for role in ("user", "assistant")]},
}
