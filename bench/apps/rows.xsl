<?xml version="1.0"?>
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
<!-- Rows sorted by value, each with how many have its name; as many times as $passes says. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:param name="passes" select="1"/>
  <xsl:key name="alike" match="row" use="concat(name, name/@kind)"/>
  <xsl:template match="/rows">
    <rows>
      <xsl:call-template name="pass">
        <xsl:with-param name="left" select="$passes"/>
      </xsl:call-template>
    </rows>
  </xsl:template>
  <xsl:template name="pass">
    <xsl:param name="left"/>
    <xsl:for-each select="row">
      <xsl:sort select="value * $left mod 1000003" data-type="number"/>
      <row id="{@id}" alike="{count(key('alike', concat(name, name/@kind)))}"/>
    </xsl:for-each>
    <xsl:if test="$left &gt; 1">
      <xsl:call-template name="pass">
        <xsl:with-param name="left" select="$left - 1"/>
      </xsl:call-template>
    </xsl:if>
  </xsl:template>
</xsl:stylesheet>
