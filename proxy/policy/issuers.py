"""Which sites a service's credentials are for, and which sites belong to one owner. Pure data, no I/O."""

from __future__ import annotations

from typing import Final

from proxy.policy.host_data import site_of

_FAMILIES: Final = (
    ("github.com", "githubusercontent.com", "ghcr.io", "githubcopilot.com", "github.dev", "githubapp.com"),
    ("google.com", "googleapis.com", "gstatic.com", "googleusercontent.com", "youtube.com", "gcr.io", "pkg.dev"),
    (
        *("microsoft.com", "microsoftonline.com", "azure.com", "azure.net", "windows.net", "office.com", "live.com"),
        *("office365.com", "visualstudio.com", "sharepoint.com", "azurecr.io", "azurewebsites.net"),
    ),
    ("amazonaws.com", "amazon.com", "amazonaws.com.cn", "api.aws", "on.aws"),
    ("openai.com", "chatgpt.com", "oaiusercontent.com"),
    ("anthropic.com", "claude.ai", "claude.com"),
    ("docker.io", "docker.com"),
    ("npmjs.org", "npmjs.com"),
    ("pypi.org", "pythonhosted.org", "python.org"),
    ("atlassian.com", "atlassian.net", "bitbucket.org", "jira.com"),
    ("slack.com", "slack-edge.com"),
    ("stripe.com", "stripe.network"),
    ("sendgrid.com", "sendgrid.net"),
    ("huggingface.co", "hf.co", "hf.space"),
    ("digitalocean.com", "digitaloceanspaces.com"),
    ("facebook.com", "fb.com", "meta.com", "instagram.com"),
    ("shopify.com", "myshopify.com"),
    ("vercel.com", "vercel.app", "zeit.co"),
    ("twilio.com", "segment.io"),
    ("discord.com", "discordapp.com"),
    ("x.ai", "x.com", "twitter.com"),
    ("notion.so", "notion.com"),
    ("cloudflare.com", "workers.dev", "r2.dev"),
    ("databricks.com", "azuredatabricks.net"),
    ("okta.com", "oktapreview.com", "okta-emea.com"),
    ("dropbox.com", "dropboxapi.com"),
    ("telegram.org", "t.me"),
    ("linear.app",),
    ("replicate.com",),
    ("groq.com",),
    ("perplexity.ai",),
    ("supabase.co", "supabase.com"),
    ("figma.com",),
    ("airtable.com",),
    ("hubspot.com", "hubapi.com"),
    ("mailgun.net", "mailgun.org", "mailgun.com"),
    ("mailchimp.com", "mandrillapp.com"),
    ("squareup.com", "squareupsandbox.com"),
    ("plaid.com",),
    ("postman.com", "getpostman.com"),
    ("sentry.io",),
    ("datadoghq.com", "datadoghq.eu", "ddog-gov.com"),
    ("newrelic.com", "nr-data.net"),
    ("tavily.com",),
    ("elevenlabs.io",),
    ("pinecone.io",),
    ("openrouter.ai",),
    ("netlify.com", "netlify.app"),
    ("heroku.com", "herokuapp.com"),
    ("fly.io", "fly.dev"),
    ("doppler.com",),
    ("rubygems.org",),
    ("crates.io",),
    ("circleci.com",),
)
_FAMILY_OF: Final = {site: family[0] for family in _FAMILIES for site in family}
# By the beginning of a detector's name. Services that people run on hosts of their own (GitLab, Vault, Jenkins) are
# left out: their tokens may go anywhere.
_ISSUED: Final = {
    "secrets.aws-": "amazonaws.com",
    "secrets.gcp-": "google.com",
    "secrets.google-": "google.com",
    "secrets.github-": "github.com",
    "secrets.openai-": "openai.com",
    "secrets.anthropic-": "anthropic.com",
    "secrets.openrouter-": "openrouter.ai",
    "secrets.huggingface-": "huggingface.co",
    "secrets.replicate-": "replicate.com",
    "secrets.groq-": "groq.com",
    "secrets.perplexity-": "perplexity.ai",
    "secrets.xai-": "x.ai",
    "secrets.tavily-": "tavily.com",
    "secrets.elevenlabs-": "elevenlabs.io",
    "secrets.pinecone-": "pinecone.io",
    "secrets.stripe-": "stripe.com",
    "secrets.square-": "squareup.com",
    "secrets.plaid-": "plaid.com",
    "secrets.shopify-": "shopify.com",
    "secrets.slack-": "slack.com",
    "secrets.discord-": "discord.com",
    "secrets.telegram-": "telegram.org",
    "secrets.twilio-": "twilio.com",
    "secrets.sendgrid-": "sendgrid.com",
    "secrets.mailgun-": "mailgun.net",
    "secrets.mailchimp-": "mailchimp.com",
    "secrets.npm-": "npmjs.org",
    "secrets.pypi-": "pypi.org",
    "secrets.rubygems-": "rubygems.org",
    "secrets.crates-": "crates.io",
    "secrets.docker-token": "docker.io",
    "secrets.digitalocean-": "digitalocean.com",
    "secrets.heroku-": "heroku.com",
    "secrets.cloudflare-": "cloudflare.com",
    "secrets.fly-": "fly.io",
    "secrets.vercel-": "vercel.com",
    "secrets.netlify-": "netlify.com",
    "secrets.supabase-": "supabase.co",
    "secrets.databricks-": "databricks.com",
    "secrets.doppler-": "doppler.com",
    "secrets.linear-": "linear.app",
    "secrets.notion-": "notion.so",
    "secrets.airtable-": "airtable.com",
    "secrets.figma-": "figma.com",
    "secrets.postman-": "postman.com",
    "secrets.hubspot-": "hubspot.com",
    "secrets.facebook-": "facebook.com",
    "secrets.dropbox-": "dropbox.com",
    "secrets.atlassian-": "atlassian.com",
    "secrets.bitbucket-": "atlassian.com",
    "secrets.circleci-": "circleci.com",
}


def owner_of(host: str) -> str:
    """Return the site that stands for all sites of a host's owner."""
    site = site_of(host)
    return _FAMILY_OF.get(site, site)


def issuer_of(detector: str) -> str | None:
    """Return the owner whose credential a detector finds; None where it is anybody's."""
    return next((_FAMILY_OF.get(site, site) for start, site in _ISSUED.items() if detector.startswith(start)), None)
