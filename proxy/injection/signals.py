# ruff: noqa: E501, RUF001  a pattern is read as one line; words of other alphabets are meant
"""What gives away a text that is meant for a model: one table of patterns. Pure.

No phrase decides by itself. Each pattern has a kind and a weight, and `passages` adds up the kinds that stand close
together. `_` in a pattern stands for what may be between two words, and `~` for up to four words more. Patterns are
written without accents, and letters of other scripts as `unicode_fold` folds them: that is how texts are read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.redact.unicode_fold import FOLD

_GAP: Final = r"(?:[\W_]+)"
_FEW_WORDS: Final = r"[\W_]+(?:\w+[\W_]+){0,4}"

_OVERRIDE = "(?:ignor(?:e|es|ing)|disregard(?:s|ing)?|forget|overrid(?:e|es|ing)|bypass|discard|neglect|skip|set_aside)"
_FORGET = "(?:ignor(?:e|es|ing)|disregard(?:s|ing)?|forget|neglect|set_aside)"
_BEFORE = "(?:previous|prior|above|earlier|preceding|foregoing|all_(?:of_)?(?:your|the))"
_EARLIER = "(?:previous|prior|above|earlier|preceding|former|existing|original|initial|foregoing|past|other|current)"
_ORDERS = "(?:i?\\w?nstructions?|prompts?|directives?|guidelines?|orders|commands?|system_(?:message|prompt)s?|programming|training|constraints?|safety_(?:rules?|measures?))"
_TELL = "(?:tell|inform|mention(?:_(?:this|it|that))?(?:_to)?|notify|alert|show|reveal(?:_(?:this|it|that))?(?:_to)?|disclose|warn|let|say|report|ask)"
_USER = "(?:the_|this_|your_|any_|to_)?(?:users?|humans?|operators?|owners?|customers?)"
_PRIVATE = (
    r"(?:api[\s_-]?keys?|access[\s_-]?tokens?|auth(?:entication)?_tokens?|session_tokens?|passwords?|passphrases?|"
    r"private[\s_-]?keys?|secret[\s_-]?keys?|secrets|credentials?|ssh_keys?|seed_phrases?|cookies|env(?:ironment)?_variables?|"
    r"system_prompts?|conversation_history|chat_history|(?:entire|full|whole)_conversation|previous_messages|"
    r"personal_(?:data|information)|credit_card(?:_numbers?)?|bank_account|medical_records?|2fa_codes?|verification_codes?)"
)
_PRIVATE_FILE = (
    r"(?:\.ssh/|id_rsa|id_ed25519|\.aws/credentials|\.env\b|mcp\.json|claude_desktop_config|\.cursor/|/etc/passwd|"
    r"/etc/shadow|\.netrc|\.npmrc|\.git-credentials|\.kube/config|\.gnupg|wallet\.dat|secrets\.(?:ya?ml|json|toml))"
)
_SEND = "(?:send|post|forward|upload|transmit|exfiltrate|e?-?mail|submit|leak|share|deliver|publish|copy|bcc|cc|report|put|pass|paste|include|append|attach|encode|embed|add)"
_PLACE = r"(?:https?://|[\w.+-]{1,40}@[\w-]{1,40}\.|webhook|(?:to|at|via)_(?:this_|the_|my_|our_)?(?:url|endpoint|server|address|e?-?mail|link)\b|attacker)"
_ARGUMENT = r"(?:parameter|argument|field|sidenote|query_string|header|body|footer|url|request|comment)"
_MODEL = "(?:ai|llm|language_model|assistant|chat_?bot|agent|model|gpt(?:-?\\d)?|claude|gemini|copilot|ai_(?:agent|assistant|model|system)|large_language_model)"
_TOOL = r"(?:tools?|functions?|api|mcp_servers?|servers?)"
_USE = "(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?|open(?:ing)?)"
_SHELL = r"(?:bash|shell|terminal|exec|command[_-]line|(?:run|exec|execute|shell)_?(?:command|shell|bash|cmd|exec)|code_(?:interpreter|execution))"
_LEAK = r"\$\((?:env|printenv|whoami|id|hostname|cat|ls|pwd|uname)\b"
_RISKY = rf"(?:(?:curl|wget)\b[^\n]{{0,160}}(?:\|_?(?:sudo_)?(?:ba|z|da)?sh\b|{_LEAK})|rm_-\w*r|/dev/tcp/)"
_RUN = "(?:execute|run|call|invoke|use|send|read|fetch|open|visit|download|delete|remove|transfer|grant|buy|post|forward|retrieve|provide|include|return|output|write|print|reply|respond|answer|say|repeat|reveal|disable|install|render|display|collect|gather)"


class Signal(NamedTuple):
    """A pattern, the kind of thing it speaks for, and how much it counts."""

    kind: str
    weight: int
    pattern: str


_TABLE: Final = (
    # Orders are to be forgotten: the plainest sign there is.
    ("override", 6, rf"\b{_FORGET}_(?:\w+_){{0,3}}{_BEFORE}_(?:\w+_){{0,2}}{_ORDERS}\b"),
    ("override", 5, rf"\b{_OVERRIDE}~{_EARLIER}~{_ORDERS}\b"),
    ("override", 5, rf"\b{_OVERRIDE}_(?:all_|any_|everything_)?(?:of_)?(?:your|the_system)_(?:\w+_)?{_ORDERS}\b"),
    (
        "override",
        5,
        rf"\b{_FORGET}_(?:everything|anything|all|what)_(?:you_(?:were|have|'ve|know|read|learned)|that_(?:was|came|has)|above|before|written|prior|previous)\b",
    ),
    (
        "override",
        4,
        rf"\b(?:do_not|don'?t|stop|never|no_longer)_(?:follow|obey|adhere|comply|listen)(?:ing)?~(?:{_EARLIER}|your|system|safety)~{_ORDERS}\b",
    ),
    ("override", 4, r"\b(?:end|stop)_(?:of_)?(?:your_)?(?:previous_|system_)(?:instructions?|prompt|message)\b"),
    (
        "override",
        4,
        r"\b(?:system|admin(?:istrator)?|developer|security|safety|policy|emergency)_(?:override|bypass)_(?:activated|enabled|initiated|mode|code|engaged|granted|protocol)\b",
    ),
    (
        "override",
        4,
        r"\b(?:instructions?|prompts?|rules|guidelines|restrictions)_(?:above|before_this|given_(?:above|before|earlier))_(?:are|is|were|was|have|has)_(?:\w+_){0,2}(?:void|invalid|wrong|outdated|cancel\w*|superseded|replaced|obsolete|lifted|fake|overridden)\b",
    ),
    (
        "override",
        4,
        r"\b(?:developer|dan|god|jailbreak|unrestricted|sudo)_mode_(?:is_)?(?:now_)?(?:enabled|activated|on|engaged)\b",
    ),
    (
        "override",
        5,
        r"\b(?:comply_with|answer|fulfil+|obey|do)_(?:all|any|every)_(?:requests?|commands?|questions?|orders?)_without_(?:any_)?(?:restrictions?|limits?|limitations?|question|exception|filters?|refus\w+)",
    ),
    (
        "override",
        4,
        r"\b(?:act|behave|respond|answer|speak)_as_(?:dan|stan|dude|aim|an_unrestricted|an_uncensored|an_unfiltered)\b",
    ),
    (
        "override",
        6,
        r"\b(?:ignora|ignorez|olvida|oubliez?|vergiss|ignorier(?:e|en)|missachte|esquece|dimentica|negeer|descarta|desconsidere)~(?:instrucciones|instructions|anweisungen|instrucoes|istruzioni|instructies|ordenes|consignes|befehle|vorgaben|indicaciones)\b",
    ),
    (
        "override",
        6,
        r"\b(?:ignora|olvida|ignorez|oubliez|ignoriere|vergiss|ignori)~(?:anteriores|previas|precedentes|vorherigen|vorherige|bisherigen|obigen|precedenti|todas_las|toutes_les|alle)~(?:instrucciones|instructions|anweisungen|instrucoes|istruzioni|instructies|consignes|befehle)",
    ),
    (
        "override",
        6,
        r"(?:(?:И|и)гнорируй|(?:З|з)абудь|(?:Н|н)е обращай внимания на)[^.\n]{0,60}(?:инструкци|указани|команд)",
    ),
    ("override", 6, r"(?:忽略|无视|忘记|不要理会|無視|忽視)[^\n]{0,60}(?:指令|指示|提示|说明|命令|要求)"),
    ("override", 6, r"(?:以前|前|上記|これまで)の?[^\n]{0,60}(?:指示|命令|プロンプト)[^\n]{0,30}(?:無視|忘れ)"),
    ("override", 6, r"(?:이전|위의|앞의)[^\n]{0,60}(?:지시|명령|프롬프트)[^\n]{0,30}(?:무시|잊)"),
    ("override", 6, r"(?:تجاهل|انس)[^.\n]{0,40}(?:التعليمات|الاوامر|الأوامر)"),
    ("override", 6, r"(?:onceki|yukaridaki)_(?:tum_)?(?:talimat|komut)\w*_(?:yok_say|unut|gormezden)"),
    # A new task, in the place of the one at hand.
    (
        "order",
        3,
        r"\b(?:strictly_)?(?:adhere_to|follow|obey|execute|comply_with|carry_out)_(?:only_)?(?:the|this|these|my)_(?:following|new|real|actual|hidden)~(?:instructions?|directives?|commands?|orders?)\b",
    ),
    (
        "order",
        3,
        r"\b(?:new|updated|revised|real|actual|true|additional|special|secret|hidden|urgent|critical|important)_(?:system_)?(?:instructions?|directives?|prompt)_?(?::|follows?\b|are\b|for_(?:the_|you|all_)?(?:ai|assistant|agent|model|llm|bot)?)",
    ),
    (
        "order",
        3,
        r"\b(?:your|the)_(?:new|real|actual|true|only|next|updated|primary)_(?:task|goal|objective|job|mission|purpose|role|identity)_(?:is|are|will_be|now)\b",
    ),
    (
        "order",
        3,
        r"\byou_(?:are|will_be|must|shall)_now_(?:an?_|in_|act|be|become|operat\w+|play|going|the_|required|to_|known|free|unrestricted|dan\b)",
    ),
    (
        "order",
        3,
        r"\byou_(?:now_have|have_been_(?:granted|given)|are_now_granted)_(?:\w+_)?(?:elevated|admin\w*|root|full|unrestricted|unlimited|developer)_(?:privileges?|access|permissions?|rights|mode)\b",
    ),
    ("order", 2, r"\bfrom_now_on,?_(?:you|your|all|every|always|the_(?:ai|assistant|agent|model))\b"),
    (
        "order",
        2,
        r"\b(?:pretend|act|behave|respond|roleplay|imagine)_(?:to_be|as_(?:if|though|an?|the)|like|that)_(?:you|an?_|the_)~(?:ai|unrestricted|admin\w*|hacker|terminal|linux|dan|developer|evil|different|no_(?:rules|restrictions|limits))\b",
    ),
    (
        "order",
        4,
        r"\bbefore_(?:you_)?(?:can_|could_)?(?:solv|complet|answer|finish|continu|proceed|do|start|begin|respond)\w*~(?:task|question|request|query|problem|job)[^.\n]{0,80}(?:do|perform|complete|execute|follow|run|call)~(?:following|first|this)\b",
    ),
    (
        "order",
        2,
        r"\bafter_(?:you_)?(?:do|did|have_done|doing|completing|finishing|that)~(?:that|this|it|so|,)?_you_(?:can|may|should)_(?:then_)?(?:solve|continue|complete|answer|proceed|return|go_back)\b",
    ),
    (
        "order",
        3,
        r"\b(?:the_)?(?:previous_|original_|above_|user'?s_|current_)?(?:task|request|answer|query)_(?:has_been|is|was)_(?:already_)?(?:completed?|done|finished|solved|answered)\b[^\n]{0,40}\b(?:now|next|then|instead)\b",
    ),
    (
        "order",
        3,
        r"\b(?:important|urgent|critical|special|priority|secret)_(?:message|notice|note|announcement|update|request)_(?:from|to|for)_(?:me|you|your|the_(?:user|system|admin\w*|developers?|owner|ai|assistant|agent|model|llm)|all_(?:ai|agents|models|assistants)|ai|llm|openai|anthropic|google)\b",
    ),
    (
        "order",
        2,
        r"\b(?:instead|rather),?_(?:you_(?:must|should|will|need_to)_)?(?:just_|only_|simply_|please_)?(?:output|print|say|reply|respond|write|send|execute|run|reveal|repeat)\b",
    ),
    (
        "order",
        3,
        r"\b(?:repeat|print|output|reveal|show|display|tell_me|write|give_me|return|summari[sz]e|translate|recite|echo|list)~(?:your|the|all|full|entire|system|initial|original|above)~(?:system_)?(?:prompts?|instructions?|text_above|words_above|message_above|rules_you|configuration_you)\b",
    ),
    (
        "order",
        2,
        r"\b(?:you|agents?|assistants?|models?)_(?:must|have_to|need_to|are_required_to|are_instructed_to|should_always|shall|are_(?:hereby_)?(?:ordered|commanded|authori[sz]ed)_to)~"
        + _RUN
        + r"\b",
    ),
    (
        "order",
        1,
        rf"\b(?:please|kindly|immediately|now|then|first|always|silently|quietly|secretly),?_(?:also_)?{_RUN}\b",
    ),
    ("order", 2, rf"\byou_(?:(?:must|should|will)_)?(?:silently|quietly|secretly|covertly)_(?:\w+_)?{_RUN}\b"),
    # The text knows that a model reads it.
    (
        "addresses-model",
        3,
        rf"\b(?:attention|hey|hello|dear|hi|note_(?:to|for)|message_(?:to|for)|instructions?_(?:to|for)|to|listen)_?,?:?_(?:all_|any_|the_|every_)?{_MODEL}s?_?(?:[:!,-]|reading|processing|who|that_(?:reads?|process\w*|pars\w*|summar\w*)|must|should|please|you)",
    ),
    ("addresses-model", 3, rf"\bif_you_(?:are|'re)_(?:an?_|the_|reading_this_as_an?_)?{_MODEL}s?\b"),
    (
        "addresses-model",
        2,
        r"\b(?:you_are|you're|as)_(?:an?_|the_)?(?:helpful_|autonomous_|unrestricted_|powerful_)?(?:ai|llm|language_model|chat_?bot|ai_(?:agent|assistant|model)|gpt(?:-?\d)?|large_language_model)\b",
    ),
    (
        "addresses-model",
        2,
        r"\b(?:ai|llm|gpt|claude)_?(?:agents?|assistants?|models?|crawlers?|systems?)?_(?:must|should|are_(?:required|instructed|to)|is_(?:required|instructed|to)|reading_this|processing_this|that_(?:reads?|process\w*|visit\w*))\b",
    ),
    (
        "addresses-model",
        2,
        r"\b(?:the_)?(?:task|question|instructions?)_(?:that_)?(?:i|the_user|your_user|you_were)_(?:gave|give|given|asked|assigned)_?(?:you|to_you)?\b",
    ),
    # People are not to know.
    (
        "secrecy",
        4,
        rf"\b(?:do_not|don'?t|never|avoid|no_need_to|refrain_from)~{_TELL}(?:ing|ning|ying)?_(?:\w+_){{0,3}}?{_USER}\b",
    ),
    (
        # Not "without first showing it to the user".
        "secrecy",
        4,
        rf"\bwithout_(?:ever_|even_|you_|having_to_|needing_to_){{0,2}}{_TELL}(?:ing|ning|ying)?_(?:\w+_){{0,3}}?{_USER}\b",
    ),
    ("secrecy", 4, rf"\b(?:hide|conceal|keep)_(?:\w+_){{0,4}}(?:from|secret_from|hidden_from|invisible_to)_{_USER}\b"),
    (
        "secrecy",
        3,
        rf"\b{_USER}_(?:must|should|does|do|will|can|may|need)_?(?:not|never|n'?t)_(?:ever_|to_)?(?:know|see|notice|be_(?:told|informed|aware|shown|notified|alerted)|find_out|learn)\b",
    ),
    (
        "secrecy",
        3,
        r"\b(?:do_not|don'?t|never)_(?:mention|reveal|disclose|explain|acknowledge|reference|display|show|report|log)_(?:this|these|that|any_of_(?:this|these)|it|the)_(?:instructions?|message|step|note|request|action|call|operation|text|prompt|tool)\b",
    ),
    (
        "secrecy",
        3,
        r"\b(?:ensuring|so_that|make_sure|making_sure)_(?:that_)?(?:it|this|they|you|the_\w+)_(?:goes?|remains?|is|are|stays?)_(?:unnoticed|undetected|hidden|secret|unseen|invisible)\b",
    ),
    (
        "secrecy",
        2,
        r"\b(?:without|no)_(?:the_)?(?:users?'?s?_)?(?:knowledge|consent|confirmation|permission|approval|detection|asking|alerting|being_(?:noticed|detected)|raising_(?:suspicion|alarms?))\b",
    ),
    ("secrecy", 1, r"\b(?:silently|secretly|covertly|discreetly|stealthily|unnoticed|undetected)\b"),
    # What nobody should give away, and to whom it is to go.
    ("asks-secret", 1, rf"\b{_PRIVATE}\b"),
    ("asks-secret", 2, _PRIVATE_FILE),
    (
        "asks-secret",
        3,
        rf"\b(?:read|open|cat|load|access|retrieve|fetch|get|find|collect|gather|extract|include|prepend|append|attach|dump|print|reveal|show|list|steal|harvest|provide|give|enter|supply|return)~(?:\w+_){{0,3}}(?:{_PRIVATE_FILE}|(?:your|the_user'?s?|user|all|any|stored|saved|my)_(?:\w+_){{0,2}}{_PRIVATE})",
    ),
    ("sends-out", 2, rf"\b{_SEND}(?:ing)?_(?:[^\n]{{0,80}}?){_PLACE}"),
    (
        "sends-out",
        3,
        rf"\b{_SEND}(?:ing)?_(?:\w+_){{0,5}}(?:{_PRIVATE}|contents?|results?|summary|data|conversation|history|files?|output|information|everything)_(?:\w+_){{0,6}}{_PLACE}",
    ),
    (
        "sends-out",
        3,
        rf"\b(?:pass|put|include|append|add|encode|embed|place|insert|write|provide|send)_(?:\w+_){{0,5}}(?:contents?|{_PRIVATE}|(?:full|whole|entire|complete)_(?:\w+_){{0,2}}(?:text|file|body|contents?|message|e?-?mail|conversation)|it|them)_(?:\w+_){{0,3}}(?:as|in|into|via|through|using)_(?:\w+_){{0,2}}['\"`]?(?:\w+['\"`]?_)?{_ARGUMENT}\b",
    ),
    (
        # Named as a program names it: no sentence for people says where to send what, and by which tool.
        "sends-out",
        4,
        rf"\b{_SEND}(?:ing)?_(?:[^\n]{{0,80}}?)(?:https?://|[\w.+-]{{1,40}}@[\w-]{{1,40}}\.)[^\n]{{0,60}}\b(?:using|with|via|through|by_calling)_(?:the_|your_)?[`'\"]?[a-z]{{2,20}}[_-]\w{{2,40}}[`'\"]?_(?:tool|function)\b",
    ),
    (
        "sends-out",
        2,
        rf"\b(?:prepend|append|include|attach|add|pass|put|insert|paste)(?:ing)?_(?:\w+_){{0,3}}(?:contents?|text|body|value)_of_(?:the_)?\S{{0,30}}{_PRIVATE_FILE}",
    ),
    (
        "sends-out",
        5,
        r"!\[[^\]\n]{0,200}\]\(\s*<?https?://[^)\s]{1,200}(?:[?&/=](?:[^)\s]{0,80})(?:\{|\$\{|%7b|<|\[|%s|data_?here|insert|secret|base64|payload|your_|conversation|exfil))",
    ),
    (
        "sends-out",
        3,
        r"\b(?:render|display|include|show|add|append|insert|output)~(?:this|following|markdown|an?)_(?:\w+_)?(?:image|img|link|pixel)\b[^\n]{0,120}https?://",
    ),
    # One tool speaks of the others, or of when it has to be used.
    (
        "claims-priority",
        3,
        rf"\b(?:before|prior_to|whenever|when|after|each_time|every_time)_(?:you_)?(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|execut(?:e|ing)|run(?:ning)?)_(?:this|any|the|other|another|every|all|each)_(?:\w+_){{0,3}}{_TOOL}\b[^.\n]{{0,60}}\b(?:you_(?:must|should|need|have)|must|always|first|also|read|open|load|access|include|call|send|bcc|instead)\b",
    ),
    (
        "claims-priority",
        3,
        r"\b(?:this_tool|it|this_function|this_server)_(?:must|has_to|needs_to|should_always|shall)_(?:always_)?(?:be_)?(?:called|used|invoked|run|executed|consulted)_(?:first|before|prior|instead|for_(?:every|all|any))",
    ),
    (
        "claims-priority",
        3,
        rf"\b(?:takes?|has|have|get|given|with)_(?:the_)?(?:highest_|absolute_|top_|higher_)?(?:priority|precedence)_over_(?:all_|any_|the_|every_)?(?:other_|existing_|previous_)?(?:\w+_)?(?:{_TOOL}|instructions?|rules?|prompts?)\b",
    ),
    (
        "claims-priority",
        3,
        rf"\b(?:do_not|don'?t|never|avoid|stop)_(?:use|call|invoke|trust|rely_on|using|calling)_(?:any_|the_|all_)?other_(?:\w+_)?{_TOOL}\b",
    ),
    (
        "claims-priority",
        3,
        rf"\b(?:always|only|must)_(?:prefer|use|call|choose|select|pick)_this_{_TOOL}_(?:\w+_)?(?:over|instead|rather|before|first|for_all)\b",
    ),
    (
        "claims-priority",
        3,
        rf"\b(?:side_?effects?|affects?|modif(?:y|ies)|changes?|redirects?|overrides?)_(?:on_|the_)?(?:behaviou?r_of_|how_)?(?:the_)?(?:other|another|mcp|[\w-]{{1,30}})_{_TOOL}\b[^.\n]{{0,80}}\b(?:must|always|recipient|instead|attacker|only)\b",
    ),
    (
        "claims-priority",
        3,
        r"\b(?:when|whenever|if)_(?:you_|the_)?(?:\w+_){0,3}(?:us|call|invok|send|execut)\w{0,4}_(?:the_)?[`'\"]?\w+[`'\"]?_?(?:tool|function|email|message)?[^.\n]{0,60}\b(?:also|always|additionally|instead|bcc|must)_(?:\w+_){0,3}(?:send|bcc|cc|include|call|forward|change|set|replace|use|copy)\b",
    ),
    (
        "claims-priority",
        3,
        rf"\b(?:when|whenever|if|before|each_time|every_time)_(?:you|the_(?:user|agent|assistant|model))_(?:\w+_){{0,4}}(?:us|call|invok|run|send)\w{{0,4}}_(?:the_|any_)?[`'\"]?\w+[`'\"]?_{_TOOL}\b[^.\n]{{0,40}}\b(?:first|always|instead)_(?:\w+_)?(?:call|us|invok|run)\w{{0,4}}_this\b",
    ),
    # From now on, whatever is asked.
    (
        "order",
        5,
        r"\b(?:every|each|all)_(?:one_)?(?:of_)?(?:(?:future|next)_)?(?:your|assistant|agent|model|ai)_(?:(?:assistant|future|next)_)?(?:repl(?:y|ies)|responses?|answers?|turns?)\b[^.\n]{0,60}\b(?:must|always|shall|have_to|need_to|required_to)_(?:\w+_){0,2}(?:call|invoke|execute|run|use|read|fetch|append|send|forward)\b",
    ),
    # A shell is to be used, or a program that nobody has seen is to be run.
    ("runs-command", 3, rf"\b{_USE}_(?:the_|your_|a_)?{_SHELL}_(?:tool|function)\b"),
    ("runs-command", 4, rf"\b{_USE}_(?:the_|your_|a_)?{_SHELL}(?:_(?:tool|function))?\b[^\n]{{0,60}}{_RISKY}"),
    ("runs-command", 3, rf"\b(?:silently|secretly|quietly|covertly|background)\b[^\n]{{0,60}}{_RISKY}"),
    ("runs-command", 3, rf"\b(?:curl|wget)\b[^\n]{{0,160}}{_LEAK}"),
    (
        "runs-command",
        5,
        r"\b(?:decode|decrypt|deobfuscate|unpack)_(?:and_\w+_)?(?:the_|this_)(?:following_|next_|attached_)?(?:base_?64|hex\w*|rot13|encoded|obfuscated|string|payload|text)_(?:\w+_){0,3}(?:and|then)_(?:then_|immediately_)?(?:execute|run|eval\w*|follow|obey)\b",
    ),
    # A conversation that is none, or the marks with which models are told who speaks.
    ("fake-turn", 6, r"<\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|eot_id|begin_of_text)\|>"),
    ("fake-turn", 4, r"\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|\[/?SYSTEM(?:_PROMPT|_MESSAGE)?\]"),
    (
        "fake-turn",
        4,
        r"#{2,6}\s*\(?(?:system|assistant|human|user)[\s_-]?(?:message|prompt|instructions?|override)?\)?\s*:|#{2,6}\s*\(?system[\s_-](?:message|prompt|override)\)?",
    ),
    ("fake-turn", 6, r"#{2,6}\s*\(system[\s_-]?message\)"),
    (
        "fake-turn",
        3,
        r"</?\s*(?:system|system[\s_-](?:prompt|message|instructions?|override|reminder)|assistant|user_query|user_message|tool_result|function_results?|function_calls?|antml:\w+)\s*>",
    ),
    (
        "fake-turn",
        3,
        r"</?\s*(?:important|critical|instructions?|secret|hidden|admin|urgent|mandatory|ai[\s_-]?instructions?|information)\s*>",
    ),
    (
        "fake-turn",
        3,
        r"(?:^|\n)\s*(?:\*\*)?(?:system|assistant|human|ai)(?:\*\*)?\s*(?:\((?:override|admin|priority)\))?:\s*[^\n]{1,300}\n(?:[^\n]{0,300}\n){0,3}\s*(?:\*\*)?(?:user|human|assistant|ai)(?:\*\*)?\s*:",
    ),
    (
        "fake-turn",
        3,
        r"(?:^|\n)\s*\[?(?:system|admin|developer)(?:_(?:message|prompt|note|notice|override|instructions?))?\]?\s*:\s*(?:you|ignore|the_(?:user|assistant|ai)|new|your|all|from_now|disregard|override|please|access)\b",
    ),
    (
        "fake-turn",
        3,
        r"\b(?:thought|action|observation|final_answer)\s*:[^\n]{0,200}\n?[^\n]{0,100}\b(?:action_input|now_you_must|task_has_been_completed|action\s*:)",
    ),
    (
        "fake-turn",
        2,
        r"(?:-{3,}|={3,}|\*{3,}|#{3,})\s*(?:end|begin|start)_of_(?:\w+_){0,2}(?:prompt|instructions?|context|data|document|input|message|email|page|results?)\b",
    ),
    # Words that are read only once they are decoded: what they stand for is looked up in the decoded text.
    ("rot13", 0, r"\b(?:vtaber|qvfertneq|vafgehpgvbaf?|cerivbhf|cebzcg|flfgrz)\b"),
    ("spelt", 0, r"[^a-z][a-z](?:[ \t.\-_*|/,]{1,3}[a-z]){9}[^a-z]"),
    (
        "leet",
        0,
        r"\b(?:[i1!|l]gn[o0]r[e3]|d[i1!|][s5$]r[e3]g[a4@]rd|[i1!|l]n[s5$][t7+]ruc[t7+][i1!|][o0]n[s5$]?|pr[e3]v[i1!|][o0]u[s5$]|[s5$]y[s5$][t7+][e3]m|pr[o0]mp[t7+])\b",
    ),
)


def _compile(pattern: str) -> str:
    """Return a pattern with its gaps, folded as texts are. A `_` inside brackets or after a backslash is itself."""
    out: list[str] = []
    depth, escaped = 0, False
    for character in pattern:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "[":
            depth = 1
        elif character == "]":
            depth = 0
        elif not depth and character in "_~":
            out.append(_GAP if character == "_" else _FEW_WORDS)
            continue
        out.append(character)
    return "(?i)" + "".join(out).translate(FOLD)


SIGNALS: Final = tuple(Signal(kind, weight, _compile(text)) for kind, weight, text in _TABLE)
# For words spelt out letter by letter, which have no gaps that can be told from those between letters.
SPACED: Final = (
    Signal(
        "override",
        6,
        r"(?i)(?:ignore|disregard|forget)\w{0,20}(?:previous|prior|above|earlier|your)\w{0,20}(?:instruct|prompt|direct|rules)",
    ),
    Signal("secrecy", 4, r"(?i)(?:donot|dont|never|without)(?:tell|inform|notify|alert)\w{0,12}user"),
    Signal(
        "asks-secret",
        3,
        r"(?i)(?:send|reveal|leak|print|read)\w{0,20}(?:password|apikey|secret|token|credential|systemprompt)",
    ),
)
KINDS: Final = (*dict.fromkeys(signal.kind for signal in SIGNALS if signal.weight), "hidden", "disguised")
